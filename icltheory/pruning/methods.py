"""Ways to prune a matrix, as values: what a strength keeps of it.

A strength is a clipping rate in [0, 1) or a :class:`~icltheory.pruning.Rank`.
"""

import abc
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from icltheory._checks import check_choice, is_tracer
from icltheory._core import exact_products, widened
from icltheory._typing import Array, Float, Int, PyTree, Rule
from icltheory.layered import MatrixSpec, get_matrix
from icltheory.linalg import SVD, svd
from icltheory.pruning.rates import RULES, Rank, check_ranks, kept_of, rank_for_rate

Strength = Any  # a number, or a Rank
Place = tuple[int | None, str]  # layer and name of a matrix


@dataclasses.dataclass(frozen=True, kw_only=True)
class Method(abc.ABC):
    """A way to prune matrices; a subclass says how, in :meth:`cutter`.

    Args:
        rule: How a rate becomes a rank, see :func:`~icltheory.pruning.rank_for_rate`.
        at_least_one: Whether a rank that rounds to 0 becomes 1 instead of an error.
    """

    rule: Rule = "floor"
    at_least_one: bool = False
    word: ClassVar[str] = ""
    spectral: ClassVar[bool] = False  # whether it reads a singular value decomposition

    def __post_init__(self):
        check_choice("rule", self.rule, RULES)

    @property
    def name(self) -> str:
        """Name by which stored answers know the method and what it depends on."""
        return self.word + self._rounding

    @property
    def _rounding(self) -> str:
        rule = "" if self.rule == "floor" else f"-{self.rule}"
        return rule + "+1" * self.at_least_one

    @property
    def fresh(self) -> "Method":
        """The method for a test set: itself, or one with other random draws."""
        return self

    def kept(self, shape: tuple[int, ...], strength: Strength) -> int:
        """The rank that a strength leaves of a matrix."""
        if isinstance(strength, Rank):
            return min(strength.value, *shape)
        return rank_for_rate(shape, strength, self.rule, at_least_one=self.at_least_one)

    @abc.abstractmethod
    def cutter(
        self, W: Float[Array, "m n"], place: Place | None = None
    ) -> Callable[[Strength], Float[Array, "m n"]]:
        """A function from a strength to the pruned matrix; ``place`` says which it is.

        What all strengths share, such as a decomposition, is computed once.
        """


class Sized(Method):
    """A method whose pruned matrix depends on the strength through :meth:`kept` alone.

    All strengths are then one compiled program.
    """

    @abc.abstractmethod
    def by_size(
        self, W: Float[Array, "m n"], parts: SVD | None = None
    ) -> Callable[[Any], Float[Array, "m n"]]:
        """A function from what is kept, which may be traced, to the matrix.

        ``parts`` is its decomposition, if it is known.
        """

    def cutter(self, W, place=None):
        """A function from a strength to the pruned matrix."""
        cut = self.by_size(W)
        return lambda strength: cut(self.kept(W.shape, strength))


@dataclasses.dataclass(frozen=True, kw_only=True)
class LowRank(Sized):
    r"""The best approximation of lower rank: the r largest singular values are kept.

    .. math:: W_r = \sum_{i \le r} s_i\, u_i v_i^\top

    By a full decomposition in float32 or better, returned in the dtype of W. The papers
    call it Clip.

    Example:
        >>> LowRank().kept((64, 256), 0.9), LowRank().kept((64, 256), Rank(8))
        (6, 8)

    Source: Yao et al. (2024), section 2; Eckart and Young (1936).
    """

    word: ClassVar[str] = "svd"
    spectral: ClassVar[bool] = True

    def by_size(self, W, parts=None):
        """A function from a rank to the matrix."""
        return _spectral_cutter(SVD.truncate, W, parts)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Whitened(Sized):
    r"""Keeps the r largest singular directions and makes their singular values equal.

    .. math:: W \mapsto \bar s_r \sum_{i \le r} u_i v_i^\top , \qquad
        \bar s_r = \Big( \frac1r \sum_{i \le r} s_i^2 \Big)^{1/2}

    The spaces and the Frobenius norm are those of :class:`LowRank`, and the condition
    number of what is kept is 1. Beside it pruning shows what the sizes of the singular
    values matter, apart from the directions. At full rank the matrix stays as it is.

    Source: Yao et al. (2024), section 3.4, which chooses layers by condition numbers.
    """

    word: ClassVar[str] = "whitened"
    spectral: ClassVar[bool] = True

    def by_size(self, W, parts=None):
        """A function from a rank to the matrix."""
        return _spectral_cutter(_equal_values, W, parts)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Magnitude(Sized):
    r"""Sets the entries of smallest magnitude to zero.

    .. math:: W_{ij} \mapsto W_{ij}\, 1[\,|W_{ij}| \text{ is among the } p \text{
        largest}\,] , \qquad p = \lfloor (1 - \xi)\, m n + 10^{-9} m n \rfloor

    The count is exact, by the rational rule of
    :func:`~icltheory.pruning.rank_for_rate`. Of equal magnitudes the one that comes
    first, row by row, is dropped first. A rank gives no count: at equal storage,
    compare with ``by_size(W)(kept_parameters(W.shape, r))``. Cost of one sort.

    Example:
        >>> cut = Magnitude().cutter(jnp.array([[3.0, -1.0], [1.0, -4.0]]))
        >>> cut(0.25).tolist()
        [[3.0, 0.0], [1.0, -4.0]]

    Source: Frankle and Carbin (2018), section 1.
    """

    word: ClassVar[str] = "magnitude"

    def kept(self, shape, strength):
        """The number of entries that a rate leaves of a matrix."""
        if isinstance(strength, Rank):
            raise ValueError(f"rates: expected rates for Magnitude, got {strength}")
        return kept_of(shape[0] * shape[1], strength, self.rule)

    def by_size(self, W, parts=None):
        """A function from a number of entries to the matrix, by one sort."""
        place = inverse(jnp.argsort(jnp.abs(W).ravel(), stable=True)).reshape(W.shape)
        return lambda kept: jnp.where(place >= W.size - kept, W, 0)


def inverse(order: Int[Array, " n"]) -> Int[Array, " n"]:
    """Place of each entry in an order."""
    numbers = jnp.arange(order.size, dtype=order.dtype)
    return jnp.zeros_like(order).at[order].set(numbers)


def kept_table(
    method: Method,
    params: PyTree,
    specs: Sequence[MatrixSpec],
    strengths: Sequence[Strength],
) -> list[list[int]]:
    """What each strength (rows) keeps of each matrix (columns)."""
    matrices = jax.eval_shape(lambda p: [get_matrix(p, s) for s in specs], params)
    shapes = [matrix.shape for matrix in matrices]
    check_ranks(shapes, strengths)
    return [[method.kept(shape, one) for shape in shapes] for one in strengths]


def check_method(method: Any, kind: type = Method) -> None:
    """Raises for what is no method."""
    if not isinstance(method, kind):
        names = "LowRank, Whitened or Magnitude" if kind is Sized else "a Method"
        raise ValueError(f"method: expected {names}, got {method!r}")


@exact_products
def _equal_values(parts: SVD, rank: Any) -> Float[Array, "m n"]:
    """First ``rank`` directions, with the root mean square of their singular values."""
    keep = jnp.arange(parts.s.shape[-1]) < rank
    mean_square = jnp.sum(jnp.where(keep, parts.s**2, 0)) / jnp.maximum(rank, 1)
    equal = jnp.where(keep, jnp.sqrt(mean_square), 0)
    return (parts.U * equal[None, :]) @ parts.Vt


def _spectral_cutter(cut_to, W, parts):
    """A function from a rank to the matrix, by one decomposition."""
    parts = svd(widened(W)) if parts is None else parts

    def cut(rank):
        pruned = cut_to(_first(parts, rank), rank).astype(W.dtype)
        return jnp.where(jnp.equal(rank, min(W.shape)), W, pruned)

    return cut


# Ranks are rounded up to a multiple of this, so that few programs are compiled. A
# smaller matrix has one program, since compiling takes longer than the product.
_RANKS = 256


def _first(parts: SVD, rank: Any) -> SVD:
    """Returns the leading part of a decomposition that a rank needs, rounded up."""
    full = parts.s.shape[-1]
    if is_tracer(rank) or not 0 <= rank <= full:
        return parts
    size = min(max(-(-int(rank) // _RANKS), 1) * _RANKS, full)
    return SVD(parts.U[..., :size], parts.s[..., :size], parts.Vt[..., :size, :])
