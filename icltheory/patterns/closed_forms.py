"""Closed forms: margin of lucky neurons, its hinge error, and the chance of a miss."""

import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Real

from icltheory._calculators import calculator
from icltheory._noted import check_nonnegative, check_unit
from icltheory._typing import Array, Float

__all__ = ["hinge", "margin", "miss_probability", "pruned_hinge"]

Numbers = Real[ArrayLike, "*_B"]


@calculator
def margin(
    coefficient_sum: Numbers, gain: Numbers, ratio: Numbers
) -> Float[Array, "*B"]:
    r"""Margin of a network of lucky neurons at coefficient sum S_1 (Theorem 2).

    .. math:: F(S_1) = g \bigl[ (1 + c S_1)_+ - (c S_1 - 1)_+ \bigr] .

    A lucky neuron is proportional to :math:`c \hat\mu + q` if its weight a is positive,
    and to :math:`c \hat\mu - q` if it is negative; attention is on the query's pattern.
    The margin rises with S_1, is 2 g from S_1 = 1/c on, and 0 up to S_1 = -1/c.
    Theorem 2 asks for S_1 >= 1. (A poster of the authors says "no larger than 1", which
    is a slip.) Below 1 the hinge error grows; the 0-1 error of one layer does not fail
    before S_1 comes near -1/c. Derived here, not a formula of the paper.

    Args:
        coefficient_sum: :math:`S_1`.
        gain: g, half the margin of saturation.
        ratio: c, of the gains of feature and label: feature part times a pattern, over
            the norm of the label part.

    Returns:
        F, of the shape the arguments broadcast to.

    Example:
        >>> S = jnp.array([4.0, 1.0, 0.0, -2.0])
        >>> margin(S, 0.5, 0.5).tolist()
        [1.0, 0.75, 0.5, 0.0]

    Source: Li et al. (2024), Theorem 2 and Proposition 2.
    """
    check_nonnegative("gain", gain)
    check_nonnegative("ratio", ratio)
    cS = jnp.asarray(ratio) * jnp.asarray(coefficient_sum)
    return jnp.asarray(gain) * (_positive(1 + cS) - _positive(cS - 1))


@calculator
def hinge(margins: Numbers) -> Float[Array, "*B"]:
    r"""Hinge loss of a margin, :math:`[1 - z F]_+`.

    Args:
        margins: Margins z F.

    Returns:
        The loss, entry by entry.

    Example:
        >>> hinge(jnp.array([0.25, 2.0])).tolist()
        [0.75, 0.0]

    Source: Li et al. (2024), equation (8).
    """
    return _positive(1 - jnp.asarray(margins))


@calculator
def pruned_hinge(margins: Numbers, pruned_fraction: Numbers) -> Float[Array, "*B"]:
    r"""Hinge error after a share g of the large neurons is pruned (Theorem 3).

    .. math:: \bigl[ 1 - F (1 - g) \bigr]_+ .

    The mean over random choices of neurons; pruning by size adds a little, because it
    takes more of one sign than of the other. Zero up to g = 1 - 1/F, then of slope F.
    Derived here, not a formula of the paper.

    Args:
        margins: Margin F before pruning.
        pruned_fraction: g, the share of the large neurons that is gone, in [0, 1].

    Returns:
        The hinge error.

    Example:
        >>> pruned_hinge(1.25, jnp.array([0.0, 0.2, 0.6])).round(6).tolist()
        [0.0, 0.0, 0.5]

    Source: Li et al. (2024), Theorem 3.
    """
    check_unit("pruned_fraction", pruned_fraction)
    return hinge(jnp.asarray(margins) * (1 - jnp.asarray(pruned_fraction)))


@calculator
def miss_probability(
    relevant_fraction: Numbers, num_examples: Numbers
) -> Float[Array, "*B"]:
    r"""Chance that no context shares the query's pattern.

    .. math:: \Bigl( 1 - \frac{\alpha'}{2} \Bigr)^l .

    A network of concentrated attention errs on these prompts alone: on all of them
    where alpha' = 1, so that its error is 2^{-l}, and on most where alpha' < 1. It is
    why the prompt has to be longer than a multiple of 1 / alpha'.

    Args:
        relevant_fraction: alpha'.
        num_examples: Number l of contexts.

    Returns:
        The probability.

    Example:
        >>> miss_probability(0.8, jnp.array([0, 1, 8])).round(6).tolist()
        [1.0, 0.6, 0.016796]

    Source: Li et al. (2024), Theorem 1, condition (2).
    """
    check_unit("relevant_fraction", relevant_fraction)
    check_nonnegative("num_examples", num_examples)
    return (1 - jnp.asarray(relevant_fraction) / 2) ** jnp.asarray(num_examples)


def _positive(value):
    return jnp.maximum(value, 0)
