"""One description of a Transformer that determines the model, its parameters, its memory and its cost.

Chapters 9 and 10.
"""

import difflib
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from numbers import Number

from course_lib import checks, feed_forward
from course_lib.course.files import read_table

ACTIVATIONS = (*feed_forward.ACTIVATIONS, *feed_forward.GATED)
MODELS = {"decoder": "DecoderOnly", "encoder": "EncoderOnly", "encoder-decoder": "EncoderDecoder"}
FAMILIES = tuple(MODELS)
NORMS = ("layer", "rms")
NORM_POSITIONS = ("pre", "post", "output", "both")
QK_NORMS = (False, True, "all")
POSITIONS = ("none", "sinusoidal", "learned", "rope", "alibi", "relative")


@dataclass(frozen=True)
class TransformerConfig:
    """Describe the shape of a Transformer. A config is frozen and checked when it is made, so it is always valid.

    Sizes
        vocab_size: V, number of tokens. d_model: features of a token. n_heads: number of attention heads, with
        d_head = d_model / n_heads features each. n_layers: number of blocks (of each stack in an encoder-decoder).
        d_ff: hidden units of the feed-forward; by default 4 · d_model, if gated two thirds of this, rounded up to a
        multiple of 256, so that its three matrices have about the size of the usual two.
        max_seq_len: longest sequence. n_kv_heads: number of key-value heads; n_heads by default, fewer in
        grouped-query attention. n_segments: number of segment embeddings of an encoder (BERT has 2).
        head_dim: d_head, if it is not d_model / n_heads (Qwen3).
    Choices
        family: "decoder" (GPT, LLaMA), "encoder" (BERT; no output head), "encoder-decoder" (the 2017 original).
        activation: "relu", "silu", "gelu", "gelu_tanh", "swiglu" or "geglu". norm: "layer" or "rms".
        norm_position: "pre", "post", "output" (after each branch, before the sum: OLMo 2) or "both" (before and after).
        positions: "none", "sinusoidal", "learned", "rope", "alibi" or "relative" (T5's). rope_theta: RoPE's base.
        A tuple has the bases of the blocks in turn and begins again at its end; None: no RoPE (SmolLM3).
        rope_interleaved: how RoPE pairs features (see positions.apply_rotary).
        rotary_share: the fraction of a head's features that RoPE rotates (GPT-NeoX: a quarter). rope_scaling: the four
        numbers of positions.slowed, for longer texts (Llama 3.1). window: how many keys a query of a decoder sees,
        including its own (Mistral); by default itself and all earlier ones. A tuple is for blocks in turn.
        qkv_bias: queries, keys and values have a bias even if bias is False (Qwen2). qk_norm: an RMSNorm over the
        features of each query and key, before RoPE (Qwen3); "all": over the features of all heads together (OLMo 2).
        parallel: both branches of a pre-norm block read the same x (GPT-NeoX).
        n_experts: the feed-forward is a mixture of this many networks (Mixtral), with d_expert hidden units each (d_ff
        unless given). experts_per_token and norm_topk_prob: as in feed_forward.MixtureOfExperts.
        tie_weights: the output head shares the token embedding's table. output_bias: it has a bias (Marian).
        bias: linear layers and LayerNorm have a bias.
        dropout: probability of dropping a value in training. norm_eps: eps of the norms.

    Errors: ValueError that names the field, its value and the allowed values.
    """

    vocab_size: int
    d_model: int
    n_heads: int
    n_layers: int
    max_seq_len: int
    d_ff: int | None = None
    n_kv_heads: int | None = None
    dropout: float = 0.0
    activation: str = "gelu"
    norm: str = "layer"
    norm_position: str = "pre"
    positions: str = "learned"
    rope_theta: float | tuple[float | None, ...] = 10000.0
    tie_weights: bool = True
    bias: bool = True
    norm_eps: float = 1e-5
    family: str = "decoder"
    n_segments: int = 0
    rope_interleaved: bool = False
    head_dim: int | None = None
    rotary_share: float = 1.0
    rope_scaling: tuple[float, float, float, float] | None = None
    window: int | tuple[int | None, ...] | None = None
    qkv_bias: bool = False
    qk_norm: bool | str = False
    parallel: bool = False
    output_bias: bool = False
    n_experts: int | None = None
    experts_per_token: int | None = None
    d_expert: int | None = None
    norm_topk_prob: bool = True

    def __post_init__(self):
        for name, value in list(vars(self).items()):
            if isinstance(value, Number) and hasattr(value, "item"):  # a numpy number: JSON only takes plain ones
                object.__setattr__(self, name, value.item())
        checks.require_at_least_one(vocab_size=self.vocab_size, n_layers=self.n_layers, max_seq_len=self.max_seq_len)
        checks.require_heads(self.d_model, self.n_heads, self.n_kv_heads, self.head_dim)
        checks.require_one_of(FAMILIES, family=self.family)
        checks.require_one_of(ACTIVATIONS, activation=self.activation)
        checks.require_one_of(NORMS, norm=self.norm)
        checks.require_one_of(NORM_POSITIONS, norm_position=self.norm_position)
        checks.require_one_of(POSITIONS, positions=self.positions)
        checks.require_one_of(QK_NORMS, qk_norm=self.qk_norm)
        switches = ("tie_weights", "bias", "rope_interleaved", "qkv_bias", "parallel", "output_bias", "norm_topk_prob")
        checks.require_one_of((True, False), **{name: getattr(self, name) for name in switches})
        checks.require_dropout(self.dropout)
        checks.require_positive(norm_eps=self.norm_eps)
        self._require_values_in_turn("rope_theta", checks.require_theta, optional=False)

        # Fill in the defaults, so that code that reads a config always finds a number.
        if self.d_ff is None:
            gated = self.activation in feed_forward.GATED
            d_ff = feed_forward.swiglu_width(self.d_model) if gated else 4 * self.d_model
            object.__setattr__(self, "d_ff", d_ff)
        n_kv_heads = self.n_heads if self.n_kv_heads is None else self.n_kv_heads
        object.__setattr__(self, "n_kv_heads", n_kv_heads)
        checks.require_at_least_one(d_ff=self.d_ff)
        if self.positions == "rope" and self.d_head % 2:
            raise ValueError(f"positions='rope' rotates pairs of features, but d_head={self.d_head} is odd")
        self._require_switches_that_fit()
        self._require_experts_that_fit()
        if not (isinstance(self.n_segments, int) and self.n_segments == 0):
            checks.require_at_least_one(n_segments=self.n_segments)
            if self.family != "encoder":
                raise ValueError(f"n_segments={self.n_segments} needs family='encoder', got family={self.family!r}")

    def _require_switches_that_fit(self) -> None:
        checks.require_share(rotary_share=self.rotary_share)
        if self.positions == "rope" and (self.d_rotary < 2 or self.d_rotary % 2):
            turned = f"rotary_share={self.rotary_share} of d_head={self.d_head} features is {self.d_rotary}"
            raise ValueError(f"{turned}, but RoPE rotates pairs: choose a share that gives an even number")
        if self.rope_scaling is not None:
            object.__setattr__(self, "rope_scaling", checks.require_rope_scaling(self.rope_scaling))
        self._require_values_in_turn("window", checks.require_at_least_one, optional=True)
        needs = {
            "rotary_share": (self.rotary_share != 1, "positions", "rope"),
            "rope_scaling": (self.rope_scaling is not None, "positions", "rope"),
            "window": (self.window is not None, "family", "decoder"),
            "n_experts": (self.n_experts is not None, "activation", "swiglu"),
            "rope_theta": (isinstance(self.rope_theta, tuple), "positions", "rope"),
            "parallel": (self.parallel, "norm_position", "pre"),
        }
        for field, (used, other, needed) in needs.items():
            if used and getattr(self, other) != needed:
                given = f"{field}={getattr(self, field)!r} needs {other}={needed!r}, got {getattr(self, other)!r}"
                raise ValueError(f"{given}: leave {field} out, or set {other}={needed!r}")
        if self.output_bias and self.family == "encoder":
            raise ValueError(
                "output_bias=True needs an output head, which family='encoder' lacks: leave output_bias out"
            )
        for field, two_branches in {"parallel": (True,), "norm_position": ("output", "both")}.items():
            if (value := getattr(self, field)) in two_branches and self.family == "encoder-decoder":
                given = f"{field}={value!r} does not support cross-attention"
                raise ValueError(f"{given}: choose family='decoder' or 'encoder'")

    def _require_experts_that_fit(self) -> None:
        if self.n_experts is None:
            for field in ("experts_per_token", "d_expert"):
                if (value := getattr(self, field)) is not None:
                    raise ValueError(f"{field}={value!r} needs n_experts: give n_experts, or leave {field} out")
            return
        checks.require_experts(self.n_experts, self.experts_per_token)  # type: ignore[arg-type]
        object.__setattr__(self, "d_expert", self.d_ff if self.d_expert is None else self.d_expert)
        checks.require_at_least_one(d_expert=self.d_expert)

    def _require_values_in_turn(self, field: str, require: Callable, optional: bool) -> None:
        value = getattr(self, field)
        in_turn = isinstance(value, tuple)
        if in_turn and not value:
            raise ValueError(f"{field}=() is empty: give one number for all blocks, or the numbers of blocks in turn")
        for each in value if in_turn else (value,):
            if each is not None or not (optional or in_turn):
                require(**{field: each})

    def of_block(self, i: int) -> tuple[int | None, float | None]:
        """Return the window of block i, and the base of its RoPE; None for no window, and for no RoPE."""
        windows = self.window if isinstance(self.window, tuple) else (self.window,)
        thetas = self.rope_theta if isinstance(self.rope_theta, tuple) else (self.rope_theta,)
        return windows[i % len(windows)], thetas[i % len(thetas)]

    @property
    def d_head(self) -> int:
        """Return D, the number of features of one head."""
        return self.d_model // self.n_heads if self.head_dim is None else self.head_dim

    @property
    def d_rotary(self) -> int:
        """Return how many of a head's features RoPE rotates."""
        return int(self.d_head * self.rotary_share)

    def to_dict(self) -> dict[str, int | float | str | bool]:
        """Return all fields as plain values, ready for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict) -> "TransformerConfig":
        """Return the config from a dictionary of its fields. Raise ValueError if a field is unknown or missing."""
        checks.require_mapping(values=values)
        known = [field.name for field in fields(cls)]
        unknown = [name for name in values if name not in known]
        if unknown:
            raise ValueError(f"unknown field {unknown[0]!r}: a TransformerConfig has {', '.join(known)}")
        values = {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}  # of JSON
        try:
            return cls(**values)
        except TypeError as error:
            raise ValueError(f"the dictionary does not describe a complete TransformerConfig: {error}") from None


def require_config(config: object) -> None:
    """Raise TypeError unless config is a TransformerConfig."""
    if not isinstance(config, TransformerConfig):
        raise TypeError(
            f"config must be a TransformerConfig, got {config!r:.80}: make one with TransformerConfig(…), preset(name) "
            "or TransformerConfig.from_dict(values)"
        )


def require_family(config: TransformerConfig, family: str) -> None:
    """Raise ValueError unless the config is of this family; TypeError if it is not a config."""
    require_config(config)
    if config.family != family:
        raise ValueError(
            f"{MODELS[family]} needs family={family!r}, got {config.family!r}: use {MODELS[config.family]} instead"
        )


# The table assets/tables/presets.toml gives the source of each preset.
PRESETS = {name: TransformerConfig.from_dict(row) for name, row in read_table("presets").items()}


def preset(name: str) -> TransformerConfig:
    """Return the published configuration of this name. Raise ValueError with the nearest names if it is unknown."""
    if not isinstance(name, str) or name not in PRESETS:
        near = difflib.get_close_matches(str(name), PRESETS, n=3, cutoff=0.3) or list(PRESETS)
        raise ValueError(f"unknown preset {name!r}. Nearest: {', '.join(near)}. All: {', '.join(PRESETS)}")
    return PRESETS[name]
