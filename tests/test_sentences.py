"""Sentences that a measurement refuted, or that nothing bore out: none of them comes back in another place."""

import re
from pathlib import Path

import nbformat
import pytest

ROOT = Path(__file__).parent.parent

# A pattern of what was said -> what was measured instead, or why nothing follows.
WITHDRAWN = {
    r"[Cc]ourse notes": "a learner has none: the claim is told with a source that anybody can open",
    r"finds the word that came next last time": "layer 2, head 3 copies by the position in the list, in 180 of 180",
    r"Nobody told it about words": "the merges may not reach across `_`; without that rule `_the_cat` is one token",
    r"[Tt]he score depends on the distance alone": "RoPE's score depends on the query and the key as well",
    r"the purpose of the √d": "Vaswani et al. 2017 give no reason for the factor √d_model",
    r"commonest mistake": "nobody counted the mistakes",
    r"decoder writes what is missing(?!, gap by gap)": "T5's does, gap by gap; BART's writes the whole text again",
    r"little of the future comes through": "a late mask, renormalized, is the right mask up to rounding",
    r"what masking after the softmax would give": "it gives 0.09, 0.09: the hidden scores are larger",
    r"which is harmless|blocks are harmless": "whether growth with depth does harm was not measured, and is contested",
    r"largest tenth": "the figure is the 95th of 100, so the largest twentieth",
    r"by 20 others in turn": "random words break the grammar, and measure the substitute",
    r"rescued post-norm": "pre-norm was not given the same help",
    r"capitals (is|are) (lost|kept)": "lost by which criterion? It is p = 0.5, and stands in the sentence",
    r"first token gets an even share": "early in a text heads of Tinytown give it several times an even share",
    r"moves (a|each) parameter by about the (learning )?rate": "in the first step; then ever less",
    r"each parameter moves about as far as the learning rate says": "in the first step; then ever less",
    r"so the steps are wild": "the first steps are exactly as long as the rate",
    r"loss falls with size, in small even steps": "after equal, few steps; with more, the small model comes nearer",
    r"Loss fell steadily with size": "after equal, few steps",
    r"other labels are right after rounding": "GPT-2 XL, 1,557,611,200, is 1.6B after rounding",
    r"gave GPT-2 small the figure of GPT-1": "the four labels are the counts with GPT-1's vocabulary",
    r"computes in 16 bits and keeps the weights in float32": "one of two recipes",
    r"This is the standard recipe": "torch.autocast is as usual, and has another bill",
    r"the decoder writes what is missing": "T5's does; BART's writes the whole text again",
    r"Stahlberg & Byrne 2019 met it": "they searched exactly, without beams",
    r"0 for the first update": "`train` asks for the rate of step 1 first",
    r"The gradients of different batches disagree, and": "with one batch in every step AdamW's moves shrink as well",
    r"one step would undo a hundred\. \*\*Clipping": "of plain descent; AdamW's step is bounded, its averages are not",
    r"what makes a \*fast\* start bearable": "the fast rate kept to the end does as well as the slow one",
    r"[Hh]alf a copying mechanism": "whether its parts must come together is not measured",
    r"Larger models learned faster": "most of the lead was the one learning rate, too low for the narrow models",
    r"cannot grow is a matter of this waiting": "LSTMs of a billion parameters were trained in 2016",
    r"the only proof that counts": "a parity test speaks for the inputs that it ran",
    r"Random weights are a harder test": "of what is swapped; a wrong eps shows with trained ones",
    r"Ask for the untrained model beside it": "counting words does as well as the trained model",
    r"[Nn]othing is asserted that": "recorded sweeps and large models are asserted, too, and take longer than a minute",
    r"What was finished is kept": "whether anything is kept depends on the command, and each says so itself",
    r"change `?solutions/|here are the source of the exercises": "the pages are: `refresh` writes both folders",
    r"in the last exercise you run it": "the training loop runs in `overfit`, the seventh of nine",
    r"[Rr]ight: 5\.9": "the cell prints 5.8, and ln 343 is 5.84",
    r"teaches what “it” means": "with another word in the place of “it” the answers are the same",
    # pretrained
    r"and then the loss gives no warning": "on the same stories every missing matrix raises it, by 1% at least",
    r"It depends on what happens to the value\.": "the size of the value, counted as well, changes nothing",
    r"[Aa]t the best rate of each, (both methods|all weights)": "at the same gain; at the end LoRA forgets more here",
    r"noun that stood \*there\*": "the answer goes by the kind of noun, also where the nouns are exchanged",
    r"it has forgotten \*more\*, in each of three seeds": "that was the rate; at its best LoRA forgets as much",
    r"random blocks destroy what the words": "on the trained table random blocks keep it",
    # embeddings
    r"large random start stays|keeps much of its random initial": "longer training, or a higher rate, overwrites it",
    r"difference decides what the words learn": "two starts come to nearly the same nearness, one of them later",
    r"nearly one loss, four geometries": "the geometries differ after 400 steps, and approach each other later",
    r"squeezes related words": "by cosine it does not, by nearest neighbours it does; the source was a small site",
    r"in the same contexts come to mean the same": "the hypothesis says that such words have similar meanings",
    # feed_forward
    r"[Aa]bout half of (what the network|the) gain": "6% to 68% by learning rate; both get their best rate now",
    r"half of the gain is left": "what the two matrices alone gain depends on the learning rate",
    r"unit's weights do not tell what it does": "its value can be read through the output table (Geva et al. 2022)",
    r"Which feature silences most units": "raising any feature leaves as many units firing as before, or more",
    # normalization
    r"as long as the steps are small|if the steps are small enough": "smaller steps are worse without norms, too",
    r"[Ss]caling each token is what matters": "no model without scaling was trained",
    r"change the stream more with depth is not explained": "tokens become alike there, and do not cancel in a mean",
    r"remembered means": "the field says running statistics",
    # blocks, gpt, counting
    r"in the residual stream is ever overwritten": "a branch can cancel it: F(x) = −x leaves nothing",
    r"fades on its way to the first layers, whatever": "some weights balance it, others make it explode",
    r"gradient cannot collapse to zero": "He et al. say so of small weights; F(x) = −x cancels it",
    r"“Post-norm needs it”, says the literature": "at its own best rate it learns without, from small weights as well",
    r"branches add up, about like the root of the depth": "before training; trained streams grow exponentially",
    r"each block multiplies the numbers, early and late blocks alike": "with PyTorch’s weights late blocks do so more",
    r"model loses nothing here when the mean": "0.03 nats on average of ten seeds; each seed differs by more",
    r"RMSNorm trains just as well": "slightly worse on average, and seeds differ by more than that",
    r"BatchNorm does about as well here\. But": "after four times the steps it does better",
    r"Pre-norm and small weights both help": "in pre-norm smaller weights allow no larger rate: one run of three fails",
    r"loses no more (by (it|that) )?than pre-norm does": "that compared small weights with large ones",
    r"claim holds for the decoder in which it was found": "only for a deep one: with 6 blocks nothing vanishes",
    r"through F\(x\) = −x \{": "a branch that cancels is no measurement of what the paper says",
    r"18 untrained blocks, gradient of the first over": "with 6 blocks beside an encoder it does not vanish",
    r"300 is far worse than not knowing": "the question says over 500",
    r"then animals, then the right one": "after block 3 the lens shows a mix, led by a colour",
    r"With one layer deleted a trained model keeps 72": "half of a finding: the paper names the early and final layers",
    r"Initialized correctly, a model.s first loss is ln V": "at GPT-2's width it is 0.16 nats more",
    r"feed-forward layers hold about two thirds\.": "four fifths where keys and values have few heads",
    r"removes one of the two largest matrices": "an identity, and not Press & Wolf's claim",
    r"removes exactly this factor": "from a table of N(0, 0.02²) the branches grow by 4.5 to 4.8, and not by 4",
    r"two conventions: d_ff = 4 d_model": "LLaMA-7B has three matrices of 2.7 d_model, and 8 d² as well",
    # sampling
    r"worse at every temperature that we tried": "at T = 0.7 neither filter is ahead",
    r"16 beams find begins with a less probable word": "from 4 of 12 beginnings; elsewhere it is shorter, or no better",
    r"With greedy search the model quickly": "the first repeat begins after 154 to 210 tokens, with a context of 96",
    r"variety hardly grows, sense collapses": "up to T = 2 the words grow by 15% or more; up to 1.5 hardly",
    r"runs once per word in every chat": "once per token, and a word may be several",
    r"Twelve chapters were about one forward pass": "chapter 12 is about training",
    r"Nucleus sampling \(top-p\) is the best decoding strategy, better than top-k": "judged by people, of long texts",
    r"already holds: l / r if l is positive": "Keskar et al. divide always; the other case came with transformers",
    r"changes by more than 0\.000": "it reads as a slip; the probabilities are the same up to rounding",
    # attention
    r"learning becomes a lottery": "that was the factor √d_k of the chain rule; none at the scores is far larger",
    r"a far larger one for a few|one in ten gets a jolt": "the largest twentieth are 1.3 times as large as scaled ones",
    r"Initialization does not cause it": "true of numbers of 0.02; with nn.Linear's own, wide heads begin saturated",
    r"preferably a small one": "a comment that told what the guess below it asks",
    # heads
    r"only an earlier layer can (have told|tell) it": "one layer whose keys are mixed with those before forms one, too",
    r"values are of similar length, as they are": "in every head the longest value is at least twice the shortest",
    r"It is not the many heads as such": "at the best rate of each, 1, 4 and 16 heads are too close to call",
    r"The key of a word must know the word before it": "true of a plain Transformer only: keys can be smeared",
    # encoder_decoder
    r"[Tt]he encoder cannot write|has learned with it cannot write": "masked diffusion models write with an encoder",
    r"decoder of the same size that scores complete sentences is ahead": "after four times the steps it is level",
    r"Padding needs its mask\.": "a translator trained without one ignores the padding; a causal decoder never sees it",
    r"Which one is ahead depends here on how the work": "after 480 steps all three are near 0",
    r"at the price of a pass for every candidate": "a decoder trained to fill in the middle needs one pass",
    r"serves many other tasks was found later": "the paper of 2017 reports constituency parsing",
    r"it cannot be exact, because the paper gives": "rounding does not explain it: 65 M would need 40,745 tokens",
    r"cannot spare a head": "the self-attentions are hardly needed here as a whole, so their heads cannot be",
    r"does better than a decoder alone": "T5 speaks of equal cost; a toy with unequal work cannot judge it",
    r"it is the larger and longer trained model": "encoder and decoder are of equal size and training",
    # efficiency
    r"With 16 bits … the difference": "the bracket that was cut names the format, and float16 changes far less",
    r"three of the four public models": "with 12 d² for each block, also for Llama 3.1, which has 13 d²",
    r"the one trick of this chapter that approximates nothing": "the cache and the blocks approximate nothing, either",
    r"hardly does, until arithmetic becomes the limit": "each text brings a cache, which limits much earlier",
    r"up to thousands of times its parameters": "open models of today have about a million times as many",
    # masks
    r"learned one thing, to read the answer": "its last positions teach it something: 3.8 nats, a uniform guess 5.8",
    r"nothing is learned for inference": "with the last position of each row in the loss something is",
    r"NaN reaches every weight of the model": "it fills the gradient of W_V; masked_fill stops it",
    r"have the same attention inside": "T5's does not divide by the root of d_k, and adds a learned number",
    r"as output, as in PyTorch's function": "that depends on the version and on the device",
    r"the recurrent network, also names": "recurrences that are linear in the state are trained in parallel by a scan",
    # positions
    r"Sinusoids allow the model to extrapolate": "the authors wrote that they may",
    r"Relative encodings, such as RoPE and ALiBi, mitigate": "a paraphrase; the author's sentence is quoted now",
    r"RoPE \| rotates q and k, every layer": "Llama 4 and SmolLM3 leave some layers out",
    # training
    r"It depends on how close to the entropy a model comes": "a loss is never below the entropy: by construction",
    r"with a quarter of the width 1\.7": "at the rate of the wide model; at its own best rate about 0.5",
    r"they are not the difference": "without the generator's state the batches differ, by 0.2 nats",
    r"Every large training does it": "with enough devices data parallelism does without it",
    r"because both averages remember the outlier: m goes on": "measured now: restoring m and v undoes the harm",
    r"if the loss does not come near zero, there is a bug": "a rate, a length or a size that is too low does it, too",
    r"The record shows that a model without attention is found out": "of five faults only this one is",
}


def texts():
    """name -> all that a learner may read: sources and docstrings, cells, outputs, and the record of the claims."""
    found = {}
    for pattern in ("course_lib/**/*.py", "course_lib/**/*.json", "README.md", "solutions/*.md", ".github/*.md"):
        for path in sorted(ROOT.glob(pattern)):
            found[path.relative_to(ROOT).as_posix()] = path.read_text(encoding="utf-8")
    for folder in ("notebooks", "exercises", "solutions"):
        for path in sorted(ROOT.glob(f"{folder}/*.ipynb")):
            notebook = nbformat.read(path, as_version=4)
            outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
            told = [output.get("text") or output.get("data", {}).get("text/plain", "") for output in outputs]
            found[f"{folder}/{path.name}"] = "\n".join([*(cell.source for cell in notebook.cells), *told])
    return found


@pytest.fixture(scope="module")
def flat():
    """The same with every run of blanks, quotes and line breaks as one blank, so that a wrapped sentence is found."""
    return {name: re.sub(r"[\s\"']+", " ", text) for name, text in texts().items()}


@pytest.mark.parametrize("sentence", WITHDRAWN, ids=lambda sentence: sentence.replace(" ", "_")[:40])
def test_a_withdrawn_sentence_stands_nowhere(flat, sentence):
    where = [name for name, text in flat.items() if re.search(sentence, text)]
    assert not where, f"“{sentence}” was withdrawn: {WITHDRAWN[sentence]}"


def test_a_sentence_that_is_wrapped_in_source_code_would_be_found(flat):
    """Of an experiment's `because`, which is written in two string literals."""
    whole = "With four times the steps the two differ by less than 0.05 nats; the authors trained far longer"
    assert any(whole in text for text in flat.values())
