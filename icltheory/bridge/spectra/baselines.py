"""Baselines of pruning at equal parameters: large entries, random directions."""

import dataclasses
import zlib
from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from icltheory._checks import check_nonnegative_int
from icltheory._typing import Array, PRNGKey
from icltheory.bridge.spectra.methods import content_key
from icltheory.pruning import Magnitude, Method, kept_parameters

__all__ = ["LargestEntries", "RandomVectors"]


@dataclasses.dataclass(frozen=True)
class RandomVectors(Method):
    r"""Control: a random matrix with the singular values that truncation keeps.

    .. math:: W' = A_r \operatorname{diag}(s_1, \dots, s_r)\, B_r^\top ,

    with the r largest singular values of W, and :math:`A_r, B_r` the first r columns of
    two independent orthogonal matrices of the Haar distribution: of Gaussian matrices
    the factor Q of QR, with the diagonal of R positive. It has the spectrum, the
    Frobenius norm and the number of parameters of truncation to rank r, and nothing of
    the directions. At full rank the matrix is unchanged, since that is the unpruned
    model. A method for :class:`~icltheory.bridge.Evaluator`.

    The draw depends on the seed, on the weights and on the layer and name of the
    matrix. It does not depend on which rates are evaluated, or in which order: the
    directions of a smaller rank are the first of those of a larger one.

    Args:
        seed: Seed of the draws.

    Example:
        >>> W = jnp.diag(jnp.array([4.0, 3.0, 2.0, 1.0]))
        >>> cut = RandomVectors(seed=1).cutter(W, (0, "W_Q"))
        >>> jnp.linalg.svd(cut(0.5), compute_uv=False).round(3).tolist()
        [4.0, 3.0, 0.0, 0.0]

    Source: Mezzadri (2007), section 5.
    """

    seed: int = 0

    def __post_init__(self):
        super().__post_init__()
        check_nonnegative_int("seed", self.seed)

    @property
    def name(self) -> str:
        """Name made of the seed."""
        return f"random-vectors-s{self.seed}{self._rounding}"

    def cutter(self, W, place=None):
        """Draws directions for a matrix; returns a function that prunes it."""
        wide = W.astype(jnp.promote_types(W.dtype, jnp.float32))
        s = jnp.linalg.svd(wide, compute_uv=False)
        key = jax.random.fold_in(
            content_key(self.seed, W), zlib.crc32(repr(place).encode())
        )
        A, B = (
            _orthonormal_columns(one, size, s.size, wide.dtype)
            for one, size in zip(jax.random.split(key), W.shape, strict=True)
        )

        def cut(strength):
            rank = self.kept(W.shape, strength)
            if rank == min(W.shape):
                return W
            return ((A[:, :rank] * s[None, :rank]) @ B[:, :rank].T).astype(W.dtype)

        return cut


@dataclasses.dataclass(frozen=True)
class LargestEntries(Method):
    r"""Magnitude pruning that keeps as many parameters as truncation stores.

    .. math:: W'_{ij} = W_{ij}\, 1[\,|W_{ij}| \text{ is among the } p \text{
        largest}\,] , \qquad p = \min\{ r (m + n),\; m n \} ,

    for the rank r of a rate. Where the factors of rank r take as much room as the
    matrix it is unchanged. Where the entries stand is not counted, although a file has
    to say that too. A method for :class:`~icltheory.bridge.Evaluator`;
    :class:`~icltheory.pruning.Magnitude` keeps :math:`(1 - \xi)\, m n` entries at rate
    :math:`\xi` instead.

    Example:
        >>> W = jnp.arange(1.0, 17.0).reshape(4, 4)
        >>> cut = LargestEntries().cutter(W)
        >>> int((cut(0.75) != 0).sum()), float(cut(0.75).sum())
        (8, 100.0)

    Source: Frankle and Carbin (2018), section 1.
    """

    word: ClassVar[str] = "magnitude-equal-parameters"

    def cutter(self, W, place=None):
        """Sorts the entries of a matrix once; returns a function that prunes it."""
        cut = Magnitude().by_size(W)
        return lambda strength: cut(
            kept_parameters(W.shape, self.kept(W.shape, strength))
        )


def _orthonormal_columns(key: PRNGKey, size: int, count: int, dtype: Any) -> Array:
    """Draws the first columns of a random orthogonal matrix."""
    Q, R = jnp.linalg.qr(jax.random.normal(key, (size, count), dtype))
    # The signs of QR depend on the draw; a positive diagonal of R makes Q uniform.
    return Q * jnp.where(jnp.diag(R) < 0, -1, 1)[None, :]
