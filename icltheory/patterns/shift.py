"""Out-of-domain patterns: orthogonal combinations with a given coefficient sum."""

import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Real

from icltheory._calculators import calculator
from icltheory._checks import check_positive_int, check_shape, concrete
from icltheory._noted import check_finite, check_values
from icltheory._typing import Array, Bool, Float, PRNGKey
from icltheory.patterns._rotation import complement, random_orthogonal

__all__ = ["is_feasible", "out_of_domain_patterns", "shift_coefficients"]

GUARD = 1e-6  # relative tolerance for M1' S_1^2 <= M1


@calculator(compiled=False)
def out_of_domain_patterns(
    patterns: Float[ArrayLike, "_M d"],
    num: int,
    coefficient_sum: Real[ArrayLike, ""],
    key: PRNGKey,
) -> Float[Array, "num d"]:
    r"""Draws orthogonal patterns in the span of others, with one coefficient sum.

    .. math:: \mu'_j = \sum_{i=1}^{M_1} k_{ji} \mu_i , \qquad \sum_i k_{ji} = S_1 ,
        \qquad \langle \mu'_j, \mu'_k \rangle = \beta^2 \delta_{jk} .

    Args:
        patterns: The relevant patterns :math:`\mu_i`, orthogonal and of one norm
            :math:`\beta`, as rows ``(M1, d)``.
        num: Number M1' of new patterns.
        coefficient_sum: :math:`S_1`; may be traced.
        key: Random key; the new patterns are uniform on all that there are.

    Returns:
        The new patterns as rows, ``(M1', d)``.

    Example:
        >>> import jax
        >>> new = out_of_domain_patterns(2 * jnp.eye(6), 3, 1.3, jax.random.key(0))
        >>> (new.sum(1) / 2).round(4).tolist()
        [1.3, 1.3, 1.3]
        >>> (new @ new.T).round(4).tolist() == (4 * jnp.eye(3)).tolist()
        True

    Source: Li et al. (2024), Theorem 2.
    """
    check_shape("patterns", patterns, ("M1", "d"))
    patterns = jnp.asarray(patterns)
    _check_orthogonal(patterns)
    K = shift_coefficients(key, patterns.shape[0], num, coefficient_sum, patterns.dtype)
    return K @ patterns


@calculator(compiled=False)
def shift_coefficients(
    key: PRNGKey,
    num_relevant: int,
    num: int,
    coefficient_sum: Real[ArrayLike, ""],
    dtype=None,
) -> Float[Array, "num M"]:
    r"""Coefficients k of out-of-domain patterns, computed without a decomposition.

    .. math:: k = \frac{1}{\sqrt n} \mathbf 1
        \Bigl( \sqrt n\, c\, u + \sqrt{1 - n c^2}\, w_0 \Bigr)^\top + V W^\top , \qquad
        c = \frac{S_1}{\sqrt{M_1}} , \quad u = \frac{\mathbf 1}{\sqrt{M_1}} ,

    with n = M1', V an orthonormal basis of the vectors of n entries that sum to 0, and
    (w_0, W) random orthonormal vectors orthogonal to u; so k k' = I and k 1 = S_1 1.
    Any such k has this form, and the distribution is uniform on them. If S_1 is traced
    and not feasible, the rows keep their sum and are not orthonormal: ask
    :func:`is_feasible`.

    Args:
        key: Random key.
        num_relevant: Number M1 of patterns to combine.
        num: Number M1' of combinations.
        coefficient_sum: :math:`S_1`; may be traced.
        dtype: Type of the result; None is JAX's default float type.

    Returns:
        k, one row for each new pattern, ``(M1', M1)``.

    Example:
        >>> import jax
        >>> k = shift_coefficients(jax.random.key(0), 6, 3, -0.5)
        >>> k.sum(1).round(4).tolist()
        [-0.5, -0.5, -0.5]

    Source: Li et al. (2024), Theorem 2; the condition is derived from Bessel's
    inequality for the vector of ones.
    """
    check_positive_int("num_relevant", num_relevant)
    check_positive_int("num", num)
    check_shape("coefficient_sum", coefficient_sum, ())
    check_finite("coefficient_sum", coefficient_sum)
    _check_feasible(num_relevant, num, coefficient_sum)
    dtype = jnp.result_type(float if dtype is None else dtype)
    M, n = num_relevant, num
    O = random_orthogonal(key, M - 1, dtype) if M > 1 else jnp.zeros((0, 0), dtype)
    W = jnp.asarray(complement(M), dtype) @ O  # orthonormal, orthogonal to u
    W = jnp.concatenate([W, jnp.zeros((M, 1), dtype)], axis=1)  # no w_0 where n = M1
    S = jnp.asarray(coefficient_sum, dtype)
    rest = jnp.sqrt(jnp.maximum(1 - n * S**2 / M, 0))
    common = S / M + rest * n**-0.5 * W[:, n - 1]
    return common[None] + jnp.asarray(complement(n), dtype) @ W[:, : n - 1].T


@calculator
def is_feasible(
    num_relevant: int, num: int, coefficient_sum: Real[ArrayLike, "*B"]
) -> Bool[Array, "*B"]:
    r"""Whether M1' orthogonal patterns of coefficient sum S_1 exist.

    .. math:: M_1' S_1^2 \le M_1 , \qquad M_1' < M_1 ; \qquad
        S_1^2 = 1 \ \text{ if } M_1' = M_1 .

    The projections of the vector of ones on M1' orthonormal rows have squares that sum
    to M1' S_1^2, and to M1 exactly if the rows are a basis.

    Args:
        num_relevant: Number M1 of patterns to combine.
        num: Number M1' of combinations.
        coefficient_sum: :math:`S_1`; any shape, may be traced.

    Returns:
        The answer, for each :math:`S_1`.

    Example:
        >>> [bool(is_feasible(6, n, 1.3)) for n in (3, 4)]
        [True, False]
        >>> [bool(is_feasible(6, 6, S)) for S in (1.0, 0.9, -1.0)]
        [True, False, True]

    Source: Li et al. (2024), Theorem 2.
    """
    check_positive_int("num_relevant", num_relevant)
    check_positive_int("num", num)
    excess = num * jnp.asarray(coefficient_sum) ** 2 / num_relevant - 1
    if num == num_relevant:
        return jnp.abs(excess) <= GUARD
    return (excess <= GUARD) & (num < num_relevant)


def _check_feasible(num_relevant, num, coefficient_sum):
    if num > num_relevant:
        raise ValueError(f"num: expected M1' <= M1 = {num_relevant}, got {num}")
    known = concrete(coefficient_sum)
    if known is None:  # checked by ``is_feasible``
        return
    square = num * float(known) ** 2
    if square > num_relevant * (1 + GUARD):
        raise ValueError(
            f"coefficient_sum: expected M1' S_1^2 <= M1 = {num_relevant}, got {square}"
        )
    if num == num_relevant and square < num_relevant * (1 - GUARD):
        raise ValueError(
            f"coefficient_sum: expected M1' S_1^2 = M1 = {num_relevant} where M1' = "
            f"M1, got {square}"
        )


def _check_orthogonal(patterns):
    gram = patterns @ patterns.T
    size = gram[0, 0]
    check_values(
        "patterns",
        jnp.max(jnp.abs(gram - size * jnp.eye(len(gram), dtype=gram.dtype))) / size,
        lambda off: off <= 1e-4,
        "orthogonal rows of one norm up to a deviation of 1e-4",
    )
