"""Effect of a checkpoint's rounding on the singular values of its weights."""

import jax.numpy as jnp
import ml_dtypes
import numpy as np
from jax.typing import ArrayLike

from icltheory._checks import check_shape, finite
from icltheory._typing import Float

__all__ = ["rounding_noise", "stored_dtype"]

_NARROW_FIRST = (ml_dtypes.bfloat16, np.float16, np.float32)
_ROWS = 1024  # rows at once, so that a large matrix is never held in float64


def stored_dtype(W: Float[ArrayLike, "*_shape"]) -> str:
    """Returns the narrowest dtype that represents every entry exactly.

    A checkpoint in half precision that was loaded in float32 is still one in half
    precision: the bits that were rounded away do not come back.

    Args:
        W: The matrix.

    Returns:
        ``"bfloat16"``, ``"float16"``, ``"float32"`` or ``"float64"``.

    Example:
        >>> W = jnp.array([[0.1, 0.2]], jnp.bfloat16).astype(jnp.float32)
        >>> stored_dtype(W), stored_dtype(jnp.array([[0.1, 0.2]], jnp.float32))
        ('bfloat16', 'float32')
    """
    check_shape("W", W, ("m", "n"))
    W = np.asarray(W)
    kinds = (np.dtype(kind) for kind in _NARROW_FIRST)
    return next((kind.name for kind in kinds if _holds(kind, W)), "float64")


def rounding_noise(W: Float[ArrayLike, "*_shape"], dtype: str | None = None) -> float:
    r"""Root mean square rounding error of a matrix's entries in their dtype.

    An entry is off by up to half the spacing :math:`u_{ij}` of numbers around it, as
    good as uniformly, so that the root mean square of the errors E is

    .. math:: \sigma_E = \Big( \frac{1}{12\, m n} \sum_{ij} u_{ij}^2 \Big)^{1/2} .

    A singular value that is isolated moves by :math:`u^\top E v`, about
    :math:`\sigma_E`; one that is zero becomes about
    :math:`\sigma_E \sqrt{|m - n| + 1}`. A bound for the worst errors, such as
    :math:`\epsilon s_1`, is far larger: in bfloat16 it would leave no condition number
    above 128.

    Args:
        W: The matrix.
        dtype: The dtype the entries were rounded to; :func:`stored_dtype` if left out.

    Returns:
        :math:`\sigma_E`.

    Example:
        >>> W = jnp.ones((2, 2), jnp.float32)
        >>> round(rounding_noise(W, "bfloat16") * 12**0.5, 6)  # the spacing at 1
        0.007812

    Source: Stewart and Sun (1990), Matrix Perturbation Theory, section V.4.
    """
    check_shape("W", W, ("m", "n"))
    finite("W", W)
    W = np.asarray(W)
    limits = jnp.finfo(dtype or stored_dtype(W))
    total = 0.0
    for start in range(0, W.shape[0], _ROWS):
        fractions, exponents = np.frexp(W[start : start + _ROWS].astype(np.float64))
        spacing = np.ldexp(float(limits.eps) * (fractions != 0), exponents - 1)
        spacing = np.maximum(spacing, float(limits.smallest_subnormal))
        total += float(np.sum(spacing**2))
    return float(np.sqrt(total / (12 * W.size)))


def _holds(kind, W):
    with np.errstate(over="ignore"):
        return all(
            np.array_equal(rows.astype(kind).astype(W.dtype), rows)
            for rows in np.array_split(W, -(-W.shape[0] // _ROWS))
        )
