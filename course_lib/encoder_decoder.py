"""Encoders: a stack that reads a text, on its own (BERT) or for a decoder that writes (the original Transformer).

Chapter 11 (Vaswani et al. 2017; Devlin et al. 2019).
"""

from collections.abc import Sequence

from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from course_lib.blocks import Stack
from course_lib.cache import KVCache
from course_lib.config import TransformerConfig, require_family
from course_lib.gpt import initialize, next_token_loss
from course_lib.layers import Layer


class EncoderOnly(Stack):
    """Read a text in both directions: every token attends to all others, so its hidden state depends on its context.

    Parameters: as in Stack. There is no output head, because the use of the hidden states depends on the task.
    Errors: ValueError if config.family is not "encoder".
    Source: Devlin et al. 2019 (BERT), without its pooler.
    """

    def __init__(self, config: TransformerConfig):
        require_family(config, "encoder")
        super().__init__(config)
        initialize(self)

    def forward(
        self,
        ids: Int[Tensor, "B T"],
        mask: Bool[Tensor, "..."] | None = None,
        segment_ids: Int[Tensor, "B T"] | None = None,
    ) -> Float[Tensor, "B T d_model"]:
        """Return the hidden states. mask: True = may attend, broadcastable to (B, H, T, T), such as
        padding_mask(lengths, T). segment_ids: (B, T), 0 for the first text, 1 for the second; 0 unless given."""
        return super().forward(ids, mask, segment_ids=segment_ids)


class EncoderDecoder(Layer):
    """Translate: an encoder reads the source; a decoder generates the target while it attends to the source.

    Parameters: `encoder` and `decoder`, two stacks that share one token embedding, and `output`. With tie_weights
    `output.weight` is also the token embedding's weight.
    Errors: ValueError if config.family is not "encoder-decoder".
    Source: Vaswani et al. 2017; section 3.4 for the shared weights.
    """

    def __init__(self, config: TransformerConfig):
        require_family(config, "encoder-decoder")
        super().__init__()
        self.config = config
        self.encoder = Stack(config)
        self.decoder = Stack(config, cross_attention=True)
        # They share the tensor, not the module: torch.func.functional_call does not restore a module with two names.
        self.decoder.token_embedding.weight = self.encoder.token_embedding.weight
        self.output = nn.Linear(config.d_model, config.vocab_size, bias=config.output_bias)
        initialize(self)
        if config.tie_weights:
            self.output.weight = self.encoder.token_embedding.weight

    def forward(
        self,
        source_ids: Int[Tensor, "B S"],
        target_ids: Int[Tensor, "B T"],
        source_mask: Bool[Tensor, "..."] | None = None,
        targets: Int[Tensor, "B T"] | None = None,
    ) -> Float[Tensor, "B T V"] | tuple[Float[Tensor, "B T V"], Float[Tensor, ""]]:
        """Return the logits (B, T, V) of the token after each of target_ids; with targets also the loss.

        source_mask: True = may be attended to, broadcastable to (B, H, T, S), such as padding_mask(lengths, S)."""
        logits = self.decode(target_ids, self.encode(source_ids, source_mask), source_mask)
        return logits if targets is None else (logits, next_token_loss(logits, targets))

    def encode(
        self, source_ids: Int[Tensor, "B S"], source_mask: Bool[Tensor, "..."] | None = None
    ) -> Float[Tensor, "B S d_model"]:
        """Return the hidden states of the source (B, S, d_model). One call serves the full target, however long."""
        return self.encoder(source_ids, source_mask)

    def decode(
        self,
        target_ids: Int[Tensor, "B T"],
        encoded: Float[Tensor, "B S d_model"],
        source_mask: Bool[Tensor, "..."] | None = None,
        cache: Sequence[tuple[KVCache, KVCache]] | None = None,
    ) -> Float[Tensor, "B T V"]:
        """Return the logits (B, T, V), given the target so far and the encoded source. cache: from new_cache()."""
        return self.output(self.decoder(target_ids, context=encoded, context_mask=source_mask, cache=cache))

    def new_cache(self) -> list[tuple[KVCache, KVCache]]:
        """Return an empty cache for `decode`."""
        return self.decoder.new_cache()
