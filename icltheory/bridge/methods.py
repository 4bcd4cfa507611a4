"""Pruning methods for language models: the published loop, activations, baselines.

Each is a :class:`~icltheory.pruning.Method`, the ``method=`` of
:class:`~icltheory.bridge.Evaluator`.
"""

import dataclasses
import hashlib
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from icltheory._checks import check_nonnegative_int, covariance, nonnegative, scalar
from icltheory._core import widened
from icltheory._typing import Array, Float, PRNGKey
from icltheory.bridge.decompositions import content_key, randomised_svd
from icltheory.linalg import SVD, svd
from icltheory.pruning import Magnitude, Method, Rank, kept_parameters
from icltheory.pruning.rates import read_rate

__all__ = ["ActivationAware", "Cumulative", "LargestEntries", "RandomVectors"]


@dataclasses.dataclass(frozen=True)
class Cumulative(Method):
    r"""Randomised truncation in which each rate starts from the previous result.

    .. math::
        W_0 = W , \qquad
        W_\xi = \operatorname{round}\big( U \operatorname{diag}(s) V^\top \big) , \quad
        (U, s, V) = \texttt{randomised\_svd}(W_{\xi^-}, r(\xi)) ,

    with :math:`\xi^-` the largest of the loop's rates below :math:`\xi`, or 0, rounded
    to the dtype of W. This is the rate loop of the published code, which edits one
    model in place; for its rounding load the model in ``"float16"``. At rate 0 the
    weights stay as they are, where the code rounds them once more.

    Optimal truncations are nested, so with them the loop would change nothing; random
    ones it changes, but not their error: of 48 equally spaced singular values the last
    of the ranks 43, 24, 12, 4 is 1.6 % above the optimum with the loop and without.

    The result depends on the weights, the loop, the rate and the seed, not on which
    rates are requested together, so that runs resume.

    Args:
        rates: Rates of the loop, in [0, 1); 0 may be omitted. Without any, every rate
            truncates the original weights once; see :attr:`fresh`.
        iterations: Subspace iterations.

    Example:
        >>> loop = Cumulative((0, 0.25, 0.5))
        >>> W = jnp.diag(jnp.array([4.0, 3.0, 2.0, 1.0]))
        >>> cut = loop.cutter(W)
        >>> [int(jnp.linalg.matrix_rank(cut(rate), 1e-3)) for rate in (0.5, 0.25, 0)]
        [2, 3, 4]

    Source: Yao et al. (2024), the published code; Halko, Martinsson and Tropp (2011).
    """

    rates: Sequence[Any]
    seed: int = 0
    iterations: int = 2

    def __post_init__(self):
        super().__post_init__()
        rates = sorted(read_rate(r, "rates: expected numbers") for r in self.rates)
        if len(set(rates)) < len(rates):
            raise ValueError(f"rates: expected no duplicates, got {tuple(rates)}")
        object.__setattr__(self, "rates", tuple(rate for rate in rates if rate))
        check_nonnegative_int("seed", self.seed)
        check_nonnegative_int("iterations", self.iterations)

    @property
    def name(self) -> str:
        """Name made of iterations, seed and rates."""
        rates = ",".join(map(str, self.rates))
        own = f"cumulative-i{self.iterations}-s{self.seed}-[{rates}]"
        return own + self._rounding

    @property
    def fresh(self) -> "Cumulative":
        """The method without the loop, with other draws, for the test set."""
        return dataclasses.replace(self, rates=())

    def key(self, W: Float[Array, "m n"], rate: float) -> PRNGKey:
        """Random key of the draw at a rate.

        It depends on the original weights and not on the results of the loop, whose
        last bits differ between devices.
        """
        place = zlib.crc32(repr((self.rates, read_rate(rate))).encode())
        return jax.random.fold_in(content_key(self.seed, W), place)

    def cutter(self, W, place=None):
        """Returns a function that prunes a matrix at any rate and caches the loop."""
        left = {0.0: W}

        def cut(rate):
            if isinstance(rate, Rank):
                raise ValueError(f"method: expected rates for a loop, got {rate}")
            rate = read_rate(rate)
            if rate not in left:
                V = cut(max((r for r in self.rates if r < rate), default=0.0))
                key, rank = self.key(W, rate), self.kept(W.shape, rate)
                if rank < min(W.shape):
                    parts = randomised_svd(key, V, rank, iterations=self.iterations)
                    V = SVD(*map(jnp.asarray, parts)).truncate(rank).astype(W.dtype)
                left[rate] = V
            return left[rate]

        return cut


@dataclasses.dataclass(frozen=True, eq=False)
class ActivationAware(Method):
    r"""Truncation that minimises the change of the outputs, not of the entries.

    .. math::
        W' = (W S)_r\, S^{-1} , \qquad S S^\top = C + \epsilon
        \frac{\operatorname{tr} C}{n} I , \qquad
        W' = \arg\min_{\operatorname{rank} V \le r} \frac1T \sum_t
        \lVert (W - V) x_t \rVert^2 \quad (\epsilon = 0) ,

    with the second moments C of the inputs and :math:`(\cdot)_r` the truncated
    singular value decomposition. With C = I it is plain truncation; the rank, and so
    the number of parameters, is the same.

    Args:
        moments: C of each (layer, matrix) to be pruned, from
            :func:`~icltheory.bridge.inputs.input_moments`.
        damping: :math:`\epsilon`, which keeps S invertible where the text has fewer
            tokens than the matrix has inputs.
        label: Name of the text in :attr:`name`, such as ``"demonstrations"``, which the
            caller keeps distinct; a digest of the moments, whose last bits differ
            between devices, unless given.

    Example:
        >>> method = ActivationAware({(0, "W_Q"): np.diag([1.0, 100.0])}, damping=0)
        >>> W = jnp.diag(jnp.array([3.0, 1.0]))
        >>> cut = method.cutter(W, (0, "W_Q"))
        >>> cut(0.5).round(4).tolist()  # the small entry reads the large input
        [[0.0, 0.0], [0.0, 1.0]]

    Source: Wang et al. (2024), section 3.1; Eckart and Young (1936) for W S.
    """

    moments: Mapping[tuple[int, str], Any]
    damping: int | float = 1e-3
    label: str = ""
    __eq__, __hash__ = object.__eq__, object.__hash__  # moments are arrays

    def __post_init__(self):
        super().__post_init__()
        (scalar & nonnegative)("damping", self.damping)
        for place, moment in self.moments.items():
            name = f"moments[{place}]"
            if np.iscomplexobj(moment):
                raise ValueError(f"{name}: expected real numbers, got complex")
            covariance(name, moment)

    @property
    def name(self) -> str:
        """Name made of the damping and the label or a digest of the moments."""
        text = self.label
        if not text:
            digest = hashlib.sha256()
            for place in sorted(self.moments):
                digest.update(repr(place).encode())
                digest.update(np.ascontiguousarray(self.moments[place]).tobytes())
            text = digest.hexdigest()[:12]
        return f"activation-d{self.damping:g}-{text}{self._rounding}"

    def cutter(self, W, place=None):
        """Returns a function that prunes a matrix at any rate, by one decomposition."""
        wide = widened(W)
        S = jnp.asarray(self._factor(place, W.shape[1]), wide.dtype)
        parts = svd(wide @ S)
        # This is V S^-1, from the triangular system of its transpose.
        right = jax.scipy.linalg.solve_triangular(S.T, parts.Vt.T, lower=False).T
        return _product_cutter(self, W, parts.U * parts.s[None], right)

    def _factor(self, place, n):
        """Returns the lower triangular factor S."""
        layer, matrix = place
        if place not in self.moments:
            raise ValueError(
                f"moments: expected an entry ({layer}, {matrix!r}), got none; "
                "input_moments computes it"
            )
        C = np.asarray(self.moments[place], np.float64)
        if C.shape != (n, n):
            raise ValueError(f"moments: expected shape {(n, n)}, got {C.shape}")
        C = C + self.damping * np.trace(C) / n * np.eye(n)
        try:
            return np.linalg.cholesky(C)
        except np.linalg.LinAlgError:
            raise ValueError(
                f"moments: expected positive definite moments of {matrix} in layer "
                f"{layer}, got singular ones; increase damping ({self.damping:g})"
            ) from None


@dataclasses.dataclass(frozen=True)
class RandomVectors(Method):
    r"""Control: a random matrix with the singular values that truncation keeps.

    .. math:: W' = A_r \operatorname{diag}(s_1, \dots, s_r)\, B_r^\top ,

    with the r largest singular values of W, and :math:`A_r, B_r` the first r columns of
    two independent Haar-distributed orthogonal matrices. Spectrum and number of
    parameters are those of truncation to rank r; the directions are not. At full rank
    the matrix is unchanged.

    The draw depends on the seed, the weights and the layer and name of the matrix: the
    directions of a smaller rank are the first of those of a larger one.

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
        wide = widened(W)
        s = jnp.linalg.svd(wide, compute_uv=False)
        number = zlib.crc32(repr(place).encode())
        key = jax.random.fold_in(content_key(self.seed, W), number)
        A, B = (
            _orthonormal_columns(one, size, s.size, wide.dtype)
            for one, size in zip(jax.random.split(key), W.shape, strict=True)
        )
        return _product_cutter(self, W, A * s[None], B.T)


@dataclasses.dataclass(frozen=True)
class LargestEntries(Method):
    r"""Magnitude pruning that keeps as many parameters as truncation stores.

    .. math:: W'_{ij} = W_{ij}\, 1[\,|W_{ij}| \text{ is among the } p \text{
        largest}\,] , \qquad p = \min\{ r (m + n),\; m n \} ,

    for the rank r of a rate. The positions of the entries, which a file also has to
    store, are not counted. At rate :math:`\xi`,
    :class:`~icltheory.pruning.Magnitude` keeps :math:`(1 - \xi)\, m n` entries instead.

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
        cut, shape = Magnitude().by_size(W), W.shape
        return lambda strength: cut(kept_parameters(shape, self.kept(shape, strength)))


def _product_cutter(method: Method, W: Array, left: Array, right: Array):
    """Returns a function to products of leading parts of two factors."""

    def cut(strength):
        rank = method.kept(W.shape, strength)
        if rank == min(W.shape):
            return W
        return (left[:, :rank] @ right[:rank]).astype(W.dtype)

    return cut


def _orthonormal_columns(key: PRNGKey, size: int, count: int, dtype: Any) -> Array:
    """Draws the first columns of a random orthogonal matrix."""
    Q, R = jnp.linalg.qr(jax.random.normal(key, (size, count), dtype))
    # The signs of QR depend on the draw; a positive diagonal of R makes Q uniform.
    return Q * jnp.where(jnp.diag(R) < 0, -1, 1)[None, :]
