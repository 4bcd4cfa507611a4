"""Quantities that decide whether a multi-step task can be learned in context."""

import jax.numpy as jnp
from jax.typing import ArrayLike

from icltheory._calculators import calculator
from icltheory._typing import Array, Bool, Float
from icltheory.chain_of_thought.transitions import (
    as_steps,
    composed,
    paths_of,
    probabilities,
)

__all__ = ["condition_1", "icl_error_limit", "rho", "rho_o", "tau", "tau_o"]


@calculator
def tau(steps: Float[ArrayLike, "..."]) -> Float[Array, ""]:
    r"""Least probability of a correct path, :math:`\tau^f` of Theorem 5.

    .. math:: \tau^f = \min_i \prod_{k=1}^K A_k[s_{k-1}(i), s_k(i)],

    along the stepwise paths s(i), see
    :func:`~icltheory.chain_of_thought.stepwise_paths`.

    Args:
        steps: Transition matrices, ``(K, M, M)``.

    Returns:
        A number in (0, 1].

    Example:
        >>> A = jnp.array([[[0.6, 0.4], [0.4, 0.6]], [[0.4, 0.6], [0.8, 0.2]]])
        >>> round(float(tau(A)), 4)
        0.36

    Source: Li et al. (2025), arXiv 2410.02167, min-max trajectory transition
    probability.
    """
    steps = as_steps(steps)
    return jnp.min(probabilities(steps, paths_of(steps)))


@calculator
def tau_o(steps: Float[ArrayLike, "..."]) -> Float[Array, ""]:
    r"""Least probability of the likeliest final output, :math:`\tau_o^f` of Theorem 6.

    .. math:: \tau_o^f = \min_i \max_j B^f_{ij} .

    Args:
        steps: Transition matrices, ``(K, M, M)``.

    Returns:
        A number in (0, 1].

    Example:
        >>> A = jnp.array([[[0.6, 0.4], [0.4, 0.6]], [[0.4, 0.6], [0.8, 0.2]]])
        >>> round(float(tau_o(A)), 4)
        0.56

    Source: Li et al. (2025), arXiv 2410.02167, min-max input-label transition
    probability.
    """
    return jnp.min(jnp.max(composed(as_steps(steps)), axis=1))


@calculator
def rho(steps: Float[ArrayLike, "..."]) -> Float[Array, ""]:
    r"""Least relative gap of a step, :math:`\rho^f` of the published Theorem 5.

    .. math:: \rho^f = \min_{k, i} \Bigl( 1 - \frac{p_{(2)}}{p_{(1)}} \Bigr), \qquad
              p = A_k[i, \cdot],

    with the two largest entries of a row; 0 where a row has a tie at the top, 1 for a
    single state. All rows count, also those that no correct path meets.

    Args:
        steps: Transition matrices, ``(K, M, M)``.

    Returns:
        A number in [0, 1].

    Example:
        >>> A = jnp.array([[[0.6, 0.4], [0.4, 0.6]], [[0.4, 0.6], [0.8, 0.2]]])
        >>> round(float(rho(A)), 4)
        0.3333

    Source: Li et al. (2025), arXiv 2410.02167, Theorem 5; the slides say gap, the ratio
    is from memory of the paper.
    """
    return jnp.min(relative_gaps(as_steps(steps)))


@calculator
def rho_o(steps: Float[ArrayLike, "..."]) -> Float[Array, ""]:
    r"""Least relative gap of the composed transition, :math:`\rho_o^f` of Theorem 6.

    .. math:: \rho_o^f = \min_i \Bigl( 1 - \frac{p_{(2)}}{p_{(1)}} \Bigr), \qquad
              p = B^f[i, \cdot] .

    Args:
        steps: Transition matrices, ``(K, M, M)``.

    Returns:
        A number in [0, 1].

    Example:
        >>> A = jnp.array([[[0.6, 0.4], [0.4, 0.6]], [[0.4, 0.6], [0.8, 0.2]]])
        >>> round(float(rho_o(A)), 4)
        0.2143

    Source: Li et al. (2025), arXiv 2410.02167, Theorem 6.
    """
    return jnp.min(relative_gaps(composed(as_steps(steps))))


def relative_gaps(rows: Array) -> Array:
    """One minus the second largest over the largest entry of each row."""
    if rows.shape[-1] == 1:
        return jnp.ones(rows.shape[:-1], rows.dtype)
    ordered = jnp.sort(rows, axis=-1)
    return 1 - ordered[..., -2] / ordered[..., -1]


@calculator
def condition_1(steps: Float[ArrayLike, "..."]) -> Bool[Array, " M"]:
    r"""Condition 1 for each input: the correct answer is the most frequent one.

    .. math:: \operatorname{argmax}_j B^f_{ij} = s_K(i) .

    Where it fails, plain in-context learning votes for a wrong answer however long the
    prompt is. Ties go to the first state.

    Args:
        steps: Transition matrices, ``(K, M, M)``.

    Returns:
        One truth value for each input.

    Example:
        >>> A = jnp.array([[[0.6, 0.4], [0.4, 0.6]], [[0.4, 0.6], [0.8, 0.2]]])
        >>> condition_1(A).tolist()
        [False, True]

    Source: Li et al. (2025), arXiv 2410.02167, Condition 1.
    """
    steps = as_steps(steps)
    return jnp.argmax(composed(steps), axis=1) == paths_of(steps)[:, -1]


@calculator
def icl_error_limit(steps: Float[ArrayLike, "..."]) -> Float[Array, ""]:
    r"""Error of plain in-context learning in the limit of long prompts, by Theorem 6.

    .. math:: \lim_{l \to \infty} P[z_K \ne v] = \frac{1}{M}
              \bigl| \{ i : \operatorname{argmax}_j B^f_{ij} \ne s_K(i) \} \bigr| ,

    for queries that are uniform over the inputs and attention that counts votes. It is
    the constant behind the Omega(1) of the theorem: 1/2 for the matrices of the slides,
    where Condition 1 fails for one of two inputs.

    Args:
        steps: Transition matrices, ``(K, M, M)``.

    Returns:
        A number in [0, 1].

    Example:
        >>> A = jnp.array([[[0.6, 0.4], [0.4, 0.6]], [[0.4, 0.6], [0.8, 0.2]]])
        >>> float(icl_error_limit(A))
        0.5

    Source: Li et al. (2025), arXiv 2410.02167, Theorem 6.
    """
    holds = condition_1(steps)
    return 1 - jnp.mean(holds, dtype=jnp.result_type(float))
