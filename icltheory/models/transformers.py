"""One constructor for the transformers that are trained on prompts."""

from typing import Any, get_args

from icltheory._checks import check_choice, check_positive_int
from icltheory.models.gpt2 import GPT2, Kind


def transformer(
    dim: int,
    num_examples: int,
    kind: Kind = "softmax",
    *,
    width: int = 64,
    num_layers: int = 3,
    num_heads: int = 2,
    **options: Any,
) -> GPT2:
    r"""A small transformer for prompts of at most N examples and a query.

    Heads of softmax attention, linear attention, or linear attention that forgets,

    .. math:: P_{ij} \propto e^{\langle q_i, k_j \rangle / \sqrt c} , \qquad
        P_{ij} = \frac{\langle q_i, k_j \rangle}{i \sqrt c} , \qquad
        P_{ij} = \frac{\langle q_i, k_j \rangle}{\sqrt c} \,
        \frac{\gamma_{j+1} \cdots \gamma_i}{\sum_{l \le i} \gamma_{l+1} \cdots \gamma_i}

    with heads of size c and a gate :math:`\gamma_t = \operatorname{sigmoid}(w^\top h_t
    + b)` of each token and head; at gates of 1 the last is the one before. Everything
    else is that of :class:`GPT2`, whose further fields are ``options``, such as
    ``mlp=False`` for attention alone. Unless given, a token is a pair
    (``token_layout="matrix"``), from which small models learn in fewer steps than from
    Garg's interleaved tokens, and ``init_std`` is 6.4 / width, at most 0.1 and at least
    Garg's 0.02, as narrow models train faster from larger weights.

    Args:
        dim: Dimension d of the inputs.
        num_examples: Most examples N of a prompt.
        kind: ``"softmax"``, ``"linear"`` or ``"gated"``.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> model = transformer(5, 20, "gated", num_layers=1)
        >>> X, y = jnp.ones((8, 21, 5)), jnp.ones((8, 21))
        >>> params = jax.jit(model.init)(jax.random.key(0), X, y)["params"]
        >>> jax.jit(model.apply)({"params": params}, X, y).shape
        (8, 21)

    Source: Garg et al. 2022 (softmax); Katharopoulos et al. 2020 (linear); Yang et al.
    2024 (gated linear attention).
    """
    check_choice("kind", kind, get_args(Kind))
    check_positive_int("num_examples", num_examples)
    layout = options.setdefault("token_layout", "matrix")
    points = num_examples + 1
    options.setdefault("init_std", min(max(6.4 / width, 0.02), 0.1))
    return GPT2(
        dim=dim,
        num_positions=2 * points if layout == "interleaved" else points,
        width=width,
        num_layers=num_layers,
        num_heads=num_heads,
        kind=kind,
        **options,
    )
