"""Singular values, condition number, and two kinds of effective rank."""

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from icltheory._checks import check_shape
from icltheory._core import calculator
from icltheory._typing import Array, Float
from icltheory.linalg.decomposition import as_matrix, finite_or_nan


@calculator
def singular_values(W: Float[ArrayLike, "*batch m n"]) -> Float[Array, "*batch k"]:
    r"""Singular values :math:`s_1 \ge \dots \ge s_k`, ``k = min(m, n)``.

    Example:
        >>> import jax.numpy as jnp
        >>> singular_values(jnp.array([[0.0, 2.0], [1.0, 0.0]])).round(6).tolist()
        [2.0, 1.0]

    Source: Golub and Van Loan, Matrix Computations, section 2.4.
    """
    return jnp.linalg.svd(finite_or_nan(as_matrix(W)), compute_uv=False)


@calculator(static=("rank",))
def condition_number(
    W: Float[ArrayLike, "*batch m n"], rank: int | None = None
) -> Float[Array, "*batch"]:
    r"""Ratio of the largest to the smallest singular value.

    .. math:: \operatorname{Cond}(W) = s_1 / s_r, \qquad r = \min(m, n)

    unless ``rank`` says otherwise. Infinity is a value: it is returned where
    :math:`s_r` is not above what rounding leaves of 0,
    :math:`\max(m, n)\, \epsilon\, s_1`. In float32 no condition number above 1e7 can be
    told from infinity; pass float64 for one. After pruning to rank r ask for
    ``rank=r``. Ratios of eigenvalues are not used: they agree for normal matrices only.

    Example:
        >>> import jax.numpy as jnp
        >>> W = jnp.diag(jnp.array([8.0, 2.0, 0.0]))
        >>> float(condition_number(W)), float(condition_number(W, rank=2))
        (inf, 4.0)

    Source: Yao et al. (2024), section 3.4 and Case 1.
    """
    s = singular_values(W)
    if rank is not None and not 1 <= rank <= s.shape[-1]:
        raise ValueError(f"rank: expected 1 <= rank <= {s.shape[-1]}, got {rank}")
    last = s[..., -1 if rank is None else rank - 1]
    rounding = max(jnp.shape(W)[-2:]) * jnp.finfo(s.dtype).eps * s[..., 0]
    singular = last <= rounding
    return jnp.where(singular, jnp.inf, s[..., 0] / jnp.where(singular, 1, last))


@calculator
def effective_rank(W: Float[ArrayLike, "*batch m n"]) -> Float[Array, "*batch"]:
    r"""Entropy-based effective rank (Roy and Vetterli).

    .. math::
        \operatorname{erank}(W) = \exp\Big(-\sum_i p_i \log p_i\Big), \qquad
        p_i = s_i / \sum_j s_j ,

    with :math:`0 \log 0 = 0`. It lies between 1 and the rank; the zero matrix has 0.
    The derivative at a vanishing singular value is infinite.

    Example:
        >>> import jax.numpy as jnp
        >>> round(float(effective_rank(jnp.eye(3))), 6)
        3.0

    Source: Roy and Vetterli (2007), definition 1.
    """
    s = _relative(singular_values(W))
    total = jnp.sum(s, axis=-1)
    zero = total == 0
    p = s / jnp.where(zero, 1, total)[..., None]
    entropy = jnp.sum(jax.scipy.special.entr(p), axis=-1)
    return jnp.where(zero, 0, jnp.exp(entropy))


@calculator
def stable_rank(W: Float[ArrayLike, "*batch m n"]) -> Float[Array, "*batch"]:
    r"""Stable rank :math:`\|W\|_F^2 / \|W\|_2^2`; 0 for the zero matrix.

    Example:
        >>> import jax.numpy as jnp
        >>> float(stable_rank(jnp.diag(jnp.array([2.0, 1.0]))))
        1.25

    Source: Rudelson and Vershynin (2007), section 1.
    """
    return jnp.sum(_relative(singular_values(W)) ** 2, axis=-1)


@calculator
def trace_bound(
    A: Float[ArrayLike, "_m _n"], B: Float[ArrayLike, "_n _m"]
) -> Float[Array, ""]:
    r"""Upper bound on the trace of a product by singular values (von Neumann).

    .. math:: |\operatorname{tr}(A B)| \le \sum_i s_i(A)\, s_i(B) ,

    with the singular values in descending order; attained where A and B share their
    singular vectors.

    Example:
        >>> import jax.numpy as jnp
        >>> float(trace_bound(jnp.diag(jnp.array([2.0, 1.0])), jnp.eye(2)).round(6))
        3.0

    Source: Zhang, Wu and Bartlett (2024), Lemma H.1.
    """
    check_shape("A", A, ("m", "n"))
    check_shape("B", B, jnp.shape(A)[::-1])
    A, B = as_matrix(A), as_matrix(B)
    return jnp.sum(singular_values(A) * singular_values(B))


def _relative(s: Array) -> Array:
    """Singular values divided by the largest, so that sums do not overflow."""
    # XLA multiplies by the reciprocal, which is rounded to 0 near the largest float.
    s = jnp.where(s[..., :1] > 1, s / 8, s)
    return s / jnp.where(s[..., :1] == 0, 1, s[..., :1])
