"""Multi-step tasks as transition matrices: products, paths and probabilities."""

import functools
from typing import Any

import jax.numpy as jnp
from jax.typing import ArrayLike

from icltheory._calculators import calculator
from icltheory._checks import check_shape
from icltheory._noted import check_finite, check_range, check_values
from icltheory._typing import Array, Float, Int

__all__ = [
    "composed_transition",
    "most_probable_paths",
    "path_probabilities",
    "stepwise_paths",
]


def as_steps(steps: Any, name: str = "steps") -> Array:
    """Checks that every row is a distribution, and converts the matrices."""
    check_shape(name, steps, ("K", "M", "M"))
    check_finite(name, steps)
    if 0 in jnp.shape(steps):
        raise ValueError(f"{name}: expected a step and a state, got {jnp.shape(steps)}")
    converted = jnp.asarray(steps)
    converted = converted.astype(jnp.promote_types(converted.dtype, jnp.float32))
    check_values(name, steps, lambda entry: entry >= 0, "probabilities >= 0")
    # The tolerance accepts rows rounded to float32, but no missing probability.
    sums = jnp.sum(converted, axis=-1)
    check_values(name, sums, lambda sum: abs(sum - 1) <= 1e-5, "rows that sum to 1")
    return converted


@calculator
def composed_transition(steps: Float[ArrayLike, "..."]) -> Float[Array, "M M"]:
    r"""Transition from input to final output, :math:`B^f` of Li et al.

    .. math:: B^f = A_1^f A_2^f \cdots A_K^f .

    Rows are distributions of the next state, so that the first step stands on the left.

    Args:
        steps: Transition matrices :math:`A_1, \dots, A_K`, ``(K, M, M)``, row i the
            distribution of what follows state i.

    Returns:
        The matrix B, ``(M, M)``, in the precision of the steps.

    Example:
        >>> A = jnp.array([[[0.6, 0.4], [0.4, 0.6]], [[0.4, 0.6], [0.8, 0.2]]])
        >>> [round(float(x), 4) for x in composed_transition(A).ravel()]
        [0.56, 0.44, 0.64, 0.36]

    Source: Li et al. (2025), arXiv 2410.02167, the K-steps transition matrix.
    """
    return composed(as_steps(steps))


def composed(steps: Array) -> Array:
    """Product of checked transition matrices."""
    return functools.reduce(functools.partial(jnp.matmul, precision="highest"), steps)


@calculator
def stepwise_paths(steps: Float[ArrayLike, "..."]) -> Int[Array, "M _"]:
    r"""Correct path from every start: the most probable state in each step.

    .. math:: s_0 = i, \qquad s_k = \operatorname{argmax}_j A_k[s_{k-1}, j] .

    Ties go to the first state. This is the answer that chain of thought should give.
    It need not be the most probable path, see :func:`most_probable_paths`.

    Args:
        steps: Transition matrices, ``(K, M, M)``.

    Returns:
        States ``(M, K + 1)``; row i begins with i.

    Example:
        >>> A = jnp.array([[[0.6, 0.4], [0.4, 0.6]], [[0.4, 0.6], [0.8, 0.2]]])
        >>> stepwise_paths(A).tolist()
        [[0, 0, 1], [1, 1, 0]]

    Source: Li et al. (2025), arXiv 2410.02167, data modelling.
    """
    return paths_of(as_steps(steps))


def paths_of(steps: Array) -> Array:
    """Stepwise paths of checked transition matrices."""
    states = [jnp.arange(steps.shape[1])]
    for A in steps:
        states.append(jnp.argmax(A, axis=1)[states[-1]])
    return jnp.stack(states, axis=1)


@calculator
def path_probabilities(
    steps: Float[ArrayLike, "..."], paths: Int[ArrayLike, "..."] | None = None
) -> Float[Array, " _"]:
    r"""Probability of a path, :math:`\prod_k A_k[s_{k-1}, s_k]`.

    Args:
        steps: Transition matrices, ``(K, M, M)``.
        paths: States ``(n, K + 1)``; the stepwise paths from all starts if left out.

    Returns:
        One probability a path, ``(n,)``.

    Example:
        >>> A = jnp.array([[[0.6, 0.4], [0.4, 0.6]], [[0.4, 0.6], [0.8, 0.2]]])
        >>> [round(float(x), 4) for x in path_probabilities(A)]
        [0.36, 0.48]

    Source: Li et al. (2025), arXiv 2410.02167, trajectory transition probability.
    """
    steps = as_steps(steps)
    if paths is None:
        return probabilities(steps, paths_of(steps))
    check_shape("paths", paths, ("n", len(steps) + 1))
    check_range("paths", paths, 0, steps.shape[-1] - 1)
    return probabilities(steps, jnp.asarray(paths))


def probabilities(steps: Array, paths: Array) -> Array:
    """Probabilities of paths for checked transition matrices."""
    factors = [A[paths[:, k], paths[:, k + 1]] for k, A in enumerate(steps)]
    return jnp.prod(jnp.stack(factors), axis=0)


@calculator
def most_probable_paths(steps: Float[ArrayLike, "..."]) -> Int[Array, "M _"]:
    r"""Most probable path from every start (Viterbi), which may differ from stepwise.

    .. math:: (s_1, \dots, s_K) = \operatorname{argmax} \prod_k A_k[s_{k-1}, s_k] .

    The slides call the correct path the most probable one. For their matrices it is;
    for those of the example below the stepwise path has .255, the most probable one
    .49. What CoT finds by counting votes at each step is the stepwise path.

    Args:
        steps: Transition matrices, ``(K, M, M)``.

    Returns:
        States ``(M, K + 1)``; ties go to the first state.

    Example:
        >>> A = jnp.array([[[0.51, 0.49], [0.5, 0.5]], [[0.5, 0.5], [1.0, 0.0]]])
        >>> stepwise_paths(A)[0].tolist(), most_probable_paths(A)[0].tolist()
        ([0, 0, 0], [0, 1, 0])
        >>> [round(float(path_probabilities(A, paths)[0]), 4)
        ...  for paths in (stepwise_paths(A), most_probable_paths(A))]
        [0.255, 0.49]

    Source: Li et al. (2025), arXiv 2410.02167, the wording of tau.
    """
    steps = as_steps(steps)
    value, choices = jnp.ones(steps.shape[1], steps.dtype), []
    for A in steps[::-1]:
        scores = A * value[None]
        choices.append(jnp.argmax(scores, axis=1))
        value = jnp.max(scores, axis=1)
    states = [jnp.arange(steps.shape[1])]
    for choice in choices[::-1]:
        states.append(choice[states[-1]])
    return jnp.stack(states, axis=1)
