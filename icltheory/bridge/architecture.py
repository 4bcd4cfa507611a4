"""The architecture of a decoder-only language model, in one hashable record."""

import dataclasses

import numpy as np

from icltheory._checks import (
    check_choice,
    check_nonnegative_int,
    check_positive_int,
    positive,
    wrong,
)

_CHOICES = {
    "norm": ("layer", "rms", "rms_plus_one"),
    "activation": ("gelu", "gelu_tanh", "relu", "silu"),
    "qk_norm": ("head", "projection", None),
}
_SIZES = (
    *("vocab_size", "width", "num_layers", "num_heads", "num_kv_heads", "head_dim"),
    *("mlp_width", "max_positions"),
)


@dataclasses.dataclass(frozen=True)
class Rotary:
    r"""Rotary positions: pairs of query and key dimensions are rotated by position.

    .. math::
        (x_a, x_b) \mapsto s\, (x_a \cos p\theta_i - x_b \sin p\theta_i ,\;
        x_b \cos p\theta_i + x_a \sin p\theta_i)

    Args:
        frequencies: :math:`\theta_i`, one for each pair; further dimensions of a head
            are not rotated.
        interleaved: Whether pair i is (2 i, 2 i + 1), as in GPT-J, and not
            (i, i + number of pairs), as everywhere else.
        scale: :math:`s`, which multiplies sine and cosine.
        switch: Sequences longer than this have other frequencies; ``None`` if there are
            no others. The longest row of a batch decides for all its rows.
        long_frequencies: Those, where they are fixed.
        ntk: Base and factor of the frequencies that grow with the sequence.

    Source: Su et al. (2021), section 3.2.
    """

    frequencies: tuple[float, ...]
    interleaved: bool = False
    scale: float = 1.0
    switch: int | None = None
    long_frequencies: tuple[float, ...] = ()
    ntk: tuple[float, float] | None = None

    @property
    def dim(self) -> int:
        """Number of rotated dimensions of a head."""
        return 2 * len(self.frequencies)


def exponents(dim: int) -> np.ndarray:
    """Returns 2 i / dim for each pair i of rotated dimensions."""
    return np.arange(0, dim, 2, dtype=np.float32) / np.float32(dim)


@dataclasses.dataclass(frozen=True)
class Experts:
    r"""Mixture of experts: each token uses the few MLPs that a router selects.

    .. math::
        p = \operatorname{softmax}(R x) , \qquad
        y = \sum_{e \in \operatorname{top}_k p} \frac{p_e}{c} \, \mathrm{MLP}_e(x)
        , \qquad c = \sum_{e \in \operatorname{top}_k p} p_e \;\text{ or }\; 1 .

    Args:
        per_token: k, how many of the ``num`` experts a token uses.
        normalised: Whether the weights of those sum to 1; else c is 1.

    Source: Shazeer et al. (2017), section 2.1; Jiang et al. (2024), section 2.1.
    """

    num: int
    per_token: int
    normalised: bool = True

    def __post_init__(self):
        check_positive_int("num", self.num)
        check_positive_int("per_token", self.per_token)
        if self.per_token > self.num:
            raise wrong("per_token", f"at most the {self.num} experts", self.per_token)


@dataclasses.dataclass(frozen=True)
class Architecture:
    r"""Everything that a decoder's program depends on, except input shapes.

    Args:
        family: Name of the family, as ``model_type`` in a Hugging Face config.
        num_kv_heads: Key and value heads; divides ``num_heads``.
        mlp_width: Width inside the MLP, or inside each expert.
        max_positions: Longest sequence the model was made for.
        norm: ``"layer"``, ``"rms"``, or ``"rms_plus_one"`` (one is added to the scale).
        activation: ``"gelu"``, ``"gelu_tanh"``, ``"relu"`` or ``"silu"``.
        gated: Whether the MLP is ``W_out (act(W_gate x) * W_in x)``.
        parallel: Whether attention and MLP read the same residual stream.
        pre_norm: Whether attention and MLP read the stream behind a norm.
        post_norm: Whether the outputs of attention and MLP pass a norm before they
            are added to the stream.
        shared_norm: Whether both read one norm's output; needs ``parallel``.
        rotary: Rotary positions; ``None`` stands for a learned table.
        local_rotary: Rotary positions of the layers with a sliding window, if other
            than ``rotary``.
        position_offset: Rows of the learned table before that of the first token.
        attention_bias: Whether queries, keys and values have biases.
        output_bias: Whether the output of attention has one.
        qk_norm: What a norm of queries and keys runs over: ``"head"`` for each head,
            ``"projection"`` for all of them at once; ``None`` for no norm.
        query_scalar: Scores are divided by its square root; ``None`` for ``head_dim``.
        score_cap: c of the soft cap :math:`c \tanh(s / c)` of scores.
        logit_cap: The same of the logits.
        sliding_window: Tokens, itself included, that a token attends to; ``None`` for
            all; a tuple has one entry for each layer.
        tied: Whether the head is the token table.
        embed_scale: What multiplies the embedded tokens.
        experts: The experts of every block; ``None`` for one MLP.

    Example:
        >>> arch = Architecture(family="gpt2", vocab_size=50, width=8, num_layers=2,
        ...     num_heads=2, num_kv_heads=2, head_dim=4, mlp_width=32, max_positions=16)
        >>> arch.rotary is None, arch.norm
        (True, 'layer')
    """

    family: str
    vocab_size: int
    width: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    mlp_width: int
    max_positions: int
    norm: str = "layer"
    norm_eps: float = 1e-5
    activation: str = "gelu_tanh"
    gated: bool = False
    parallel: bool = False
    pre_norm: bool = True
    post_norm: bool = False
    shared_norm: bool = False
    rotary: Rotary | None = None
    local_rotary: Rotary | None = None
    position_offset: int = 0
    attention_bias: bool = False
    output_bias: bool = False
    mlp_bias: bool = False
    head_bias: bool = False
    qk_norm: str | None = None
    query_scalar: float | None = None
    score_cap: float | None = None
    logit_cap: float | None = None
    sliding_window: int | None | tuple[int | None, ...] = None
    tied: bool = False
    embed_scale: float = 1.0
    experts: Experts | None = None

    def __post_init__(self):
        for name in _SIZES:
            check_positive_int(name, getattr(self, name))
        check_nonnegative_int("position_offset", self.position_offset)
        for name, choices in _CHOICES.items():
            check_choice(name, getattr(self, name), choices)
        for name in ("query_scalar", "score_cap", "logit_cap"):
            if getattr(self, name) is not None:
                positive(name, getattr(self, name))
        if self.num_heads % self.num_kv_heads:
            wanted = f"a divisor of num_heads {self.num_heads}"
            raise wrong("num_kv_heads", wanted, self.num_kv_heads)
        if self.shared_norm and not (self.parallel and self.pre_norm):
            raise ValueError(
                "shared_norm: expected False in a block that is sequential or has no "
                "norm before attention, got True"
            )
        for window in self.windows:
            if window is not None:
                check_positive_int("sliding_window", window)
        if len(self.windows) != self.num_layers:
            wanted = f"one for each of {self.num_layers} layers"
            raise wrong("sliding_window", wanted, len(self.windows))
        self._check_rotary()

    def _check_rotary(self):
        for name in ("rotary", "local_rotary"):
            rotary = getattr(self, name)
            if rotary is not None and not 0 < rotary.dim <= self.head_dim:
                got = f"got {len(rotary.frequencies)}"
                most = self.head_dim // 2
                raise ValueError(f"{name}: expected 1 to {most} frequencies, {got}")
        local = self.local_rotary
        if local is not None and (self.rotary is None or not any(self.windows)):
            raise ValueError(
                "local_rotary: expected None where no layer has both rotary positions "
                f"and a sliding window, got a Rotary of {local.dim} dimensions"
            )
        if local is not None and local.switch is not None:
            raise ValueError(
                "local_rotary: expected frequencies that do not change with the "
                f"length, got a change beyond {local.switch} tokens"
            )

    @property
    def windows(self) -> tuple[int | None, ...]:
        """Sliding window of every layer."""
        if isinstance(self.sliding_window, tuple):
            return self.sliding_window
        return (self.sliding_window,) * self.num_layers

    @property
    def uniform(self) -> bool:
        """Whether all layers have the same window and rotary positions."""
        return self.local_rotary is None and not isinstance(self.sliding_window, tuple)

    def of_layer(self, layer: int) -> "Architecture":
        """Returns the uniform architecture whose blocks equal the block of one layer.

        Layers of the same kind have equal ones, and so share compiled programs.
        """
        if self.uniform:
            return self
        window, rotary = self.windows[layer], self.rotary
        if window is not None and self.local_rotary is not None:
            rotary = self.local_rotary
        return dataclasses.replace(
            self, sliding_window=window, rotary=rotary, local_rotary=None
        )

    @property
    def switch(self) -> int | None:
        """Length beyond which all rotary frequencies change; ``None`` if never."""
        return None if self.rotary is None else self.rotary.switch

    @property
    def context_length(self) -> int:
        """Longest sequence: ``max_positions``, times the factor of dynamic scaling."""
        if self.rotary is None or self.rotary.ntk is None:
            return self.max_positions
        return int(self.max_positions * self.rotary.ntk[1])
