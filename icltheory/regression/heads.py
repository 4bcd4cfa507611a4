"""Linear attention with several heads: its exact risk, removed heads, and plateaus.

A head has a value weight v_h and a key-query matrix U_h, which is one matrix (merged)
or a product K_h'Q_h of rank R (separate). The layer is one linear step with the sum
Gamma of v_h U_h'. While the risk rests on a plateau, each head moves by itself, as a
point in a potential that reaches infinity at a finite time, the plateau's end.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from icltheory._checks import (
    check_key,
    check_positive_int,
    check_shape,
    checked,
    positive,
    scalar,
)
from icltheory._core import Record
from icltheory._typing import Array, Float, Int, PRNGKey, Scalar
from icltheory.regression._block_moments import check_dim, of_population
from icltheory.regression._linalg import (
    Number,
    default_dtype,
    einsum,
    quotient,
    root_matrix,
)
from icltheory.regression.blocks import Block, EffectiveParameters
from icltheory.regression.population import LinearPopulation, label_moment, step_risk
from icltheory.regression.predictors.base import LinearInLabels


class Heads(LinearInLabels, Block):
    r"""One layer of linear attention with H heads.

    .. math:: \hat w = \frac{\Gamma}{N} X^\top y, \qquad
        \Gamma = \sum_h v_h U_h^\top, \qquad U_h = K_h^\top Q_h ,

    for values v ``(H,)``, keys K and queries Q ``(H, R, d)``; or U_h = K_h ``(d, d)``
    where Q is ``None``, the key-query matrix as one parameter.

    Example:
        >>> K = jnp.array([[[1.0, 0.0]], [[0.0, 1.0]]])  # two heads of rank 1
        >>> model = Heads(jnp.array([1.0, 2.0]), K, K)
        >>> model.Gamma.tolist()
        [[1.0, 0.0], [0.0, 2.0]]

    Source: Zhang, Singh, Latham and Saxe (2025).
    """

    v: Any
    K: Any
    Q: Any = None

    def __post_init__(self):
        self._read()
        check_shape("v", self.v, ("H",))
        check_positive_int("heads", len(self.v))
        rank = "d" if self.Q is None else "R"
        check_shape("K", self.K, (len(self.v), rank, "d"))
        check_positive_int("dim", self.K.shape[-1])
        if self.Q is not None:
            check_shape("Q", self.Q, self.K.shape)

    @classmethod
    def random(
        cls,
        dim: int,
        heads: int,
        scale: Number,
        *,
        key: PRNGKey,
        rank: int | None = None,
        dtype: Any = None,
    ) -> "Heads":
        """Draws all weights from N(0, scale^2); merged heads without a rank."""
        rows = dim if rank is None else rank
        for name, value in (("dim", dim), ("heads", heads), ("rank", rows)):
            check_positive_int(name, value)
        check_key("key", key)
        dtype = default_dtype(dtype)
        scale = jnp.asarray(checked("scale", scale, scalar & positive), dtype)
        keys, shape = jax.random.split(key, 3), (heads, rows, dim)
        v = scale * jax.random.normal(keys[0], (heads,), dtype)
        K, Q = (scale * jax.random.normal(key, shape, dtype) for key in keys[1:])
        return cls(v, K, None if rank is None else Q)

    def key_query(self) -> Float[Array, "H d d"]:
        """The key-query matrices U_h."""
        return self.K if self.Q is None else einsum("hri,hrj->hij", self.K, self.Q)

    @property
    def Gamma(self) -> Float[Array, "d d"]:
        """The linear step that the heads make together."""
        return einsum("h,hji->ij", self.v, self.key_query())

    def weights(self, X: Array, y: Array) -> Array:
        """The step from zero."""
        moment = einsum("nd,n->d", X, y) / max(X.shape[0], 1)
        return einsum("ij,j->i", self.Gamma, moment)

    def exact_risk(self, population: LinearPopulation, k: Array) -> Array:
        """The risk of a linear step with Gamma, without the query's noise."""
        check_dim(population, self.dim)
        return step_risk(population, self.Gamma, k)

    def effective(self) -> EffectiveParameters:
        """The same function as effective parameters: v = 1, U = Gamma', the rest 0."""
        one, zero = jnp.ones((), self.dtype), jnp.zeros_like(self.K[0, 0])
        return EffectiveParameters(zero, zero, one, self.Gamma.T, zero)


def drive(population: LinearPopulation, num_examples: Any) -> tuple[Array, Array]:
    """B = H M H and S of the risk c - 2 <Gamma, B> + tr(Gamma' H Gamma S)."""
    H, M = population.input_cov, population.second_moment
    k = jnp.asarray(num_examples, population.dtype)
    return H @ M @ H, label_moment(population, M, k) / k


def whitened(population: LinearPopulation) -> tuple[Array, Array, Array]:
    """H^{1/2}, and eigenvalues (descending) and vectors of H^{1/2} E[ww'] H^{1/2}."""
    root = root_matrix(population.input_root)
    phi, W = jnp.linalg.eigh(root @ population.second_moment @ root)
    return root, jnp.maximum(phi[::-1], 0), W[:, ::-1]


@of_population
def head_plateaus(
    population: LinearPopulation, num_examples: Any
) -> Float[Array, " m"]:
    r"""Risks ``(d + 1,)`` at which the flow of separate heads rests, query noise in.

    .. math:: R_m = \tau - \sum_{i \le m} \frac{N \phi_i^2}{(N + 1) \phi_i + \tau},
        \qquad \tau = \sum_i \phi_i + \sigma^2, \qquad m = 0, \dots, d,

    with phi_1 >= ... >= phi_d the eigenvalues of H^{1/2} E[w w'] H^{1/2}: R_m is the
    least risk of a Gamma of rank m. Every stationary value has this form, with any
    set of directions in place of the first m; H and the tasks need not commute. From
    small weights heads of rank R rest long at m = 0, R, 2R, ... and merged heads at
    m = 0 only.

    Example:
        >>> population = LinearPopulation(jnp.diag(jnp.array([3.0, 1.0])))
        >>> [round(float(risk), 2) for risk in head_plateaus(population, 8)]
        [4.0, 1.68, 1.06]

    Source: Zhang, Singh, Latham and Saxe (2025), for w ~ N(0, I) without noise.
    """
    N = jnp.asarray(num_examples, population.dtype)
    _, phi, _ = whitened(population)
    tau = jnp.sum(phi) + population.noise_var
    gains = N * phi**2 / ((N + 1) * phi + tau)
    return tau - jnp.append(0, jnp.cumsum(gains))


class HeadRemovals(Record):
    """Exact changes of the risk when parts of the heads are removed.

    Args:
        heads: Change when head h is removed.
        directions: Change when singular direction i of head h's key-query matrix is.
        singular_values: Of the key-query matrices, times abs(v_h).
    """

    risk: Scalar
    heads: Float[Array, "... H"]
    directions: Float[Array, "... H R"]
    singular_values: Float[Array, "... H R"]


@of_population
def head_removals(
    model: Heads, population: LinearPopulation, num_examples: Any
) -> HeadRemovals:
    r"""How the exact risk changes when one head, or one direction of one, is removed.

    .. math:: R(\Gamma - D) - R(\Gamma) = -\langle D, \nabla R(\Gamma)\rangle
        + \mathrm{tr}(D^\top H D S), \qquad
        D = v_h U_h^\top \quad \text{or} \quad D = v_h \sigma_i\, b_i a_i^\top ,

    for U_h = sum_i sigma_i a_i b_i', without a difference of risks. The model may have
    leading axes, as that of a trajectory. On another population or N than that of the
    training, for commuting H and E[ww'], removing direction i from an optimum lowers
    the risk exactly if gamma_i > 2 gamma_i', gamma' the optimum there.

    Example:
        >>> population = LinearPopulation.isotropic(2)
        >>> model = Heads(jnp.ones(1), 0.5 * jnp.eye(2)[None])
        >>> found = head_removals(model, population, 2)
        >>> float(found.heads[0]), found.directions.tolist()
        (0.75, [[0.375, 0.375]])

    Source: Yao et al. (2024), for pruning by singular directions.
    """
    if jnp.ndim(model.v) > 1:
        return jax.vmap(lambda one: head_removals(one, population, num_examples))(model)
    check_dim(population, model.dim)
    B, S = drive(population, num_examples)
    H, U = population.input_cov, model.key_query()
    slope = 2 * (H @ model.Gamma @ S - B)
    a, sizes, b = jnp.linalg.svd(U)
    rank = min(model.K.shape[1:])
    a, sizes, b = a[:, :, :rank], sizes[:, :rank], b[:, :rank]
    scaled = model.v[:, None] * sizes
    D = einsum("h,hji->hij", model.v, U)
    square = einsum("hji,jk,hkl,li->h", D, H, D, S)
    # D_hi = scaled b a', so that tr(D'HDS) = scaled^2 (b'Hb) (a'Sa).
    along = einsum("hri,ij,hjr->hr", b, slope, a)
    sides = einsum("hri,ij,hrj->hr", b, H, b) * einsum("hir,ij,hjr->hr", a, S, a)
    risk = model.exact_risk(population, jnp.asarray(num_examples, H.dtype))
    return HeadRemovals(
        risk=risk + population.noise_var,
        heads=square - einsum("hij,ij->h", D, slope),
        directions=scaled**2 * sides - scaled * along,
        singular_values=jnp.abs(scaled),
    )


# Half of a gain is reached where x^3 = gamma / gamma_i is 1 - 2^{-1/2}, at the time
# (1 / x - integral of x / (1 - x^3)) / (2 c u) before the frozen head's infinity.
_HALF = (1 - 0.5**0.5) ** (1 / 3)
_EARLY = 1 / _HALF - sum(_HALF ** (3 * j + 2) / (3 * j + 2) for j in range(80))
_STEP = 0.01  # relative growth of the largest head in a step
_MOST = 100_000  # steps after which a head counts as resting


class HeadTimes(Record):
    """When each long plateau of the flow ends, and by which head.

    Args:
        times: Times at which half of the next direction's gain is reached; infinite
            where no head grows.
        heads: The head that grows; of merged heads, which grow together, the largest.
        learned: Directions that are learned before, m of the plateau.
    """

    times: Float[Array, " P"]
    heads: Int[Array, " P"]
    learned: Int[Array, " P"]


@of_population
def head_times(
    model: Heads, population: LinearPopulation, num_examples: Any
) -> HeadTimes:
    r"""Predicts when the gradient flow leaves each plateau, from its small start.

    On plateau m the flow of a head that is still small is that of a constant drive
    C_m = H^{1/2} Phi_{>m} H^{1/2}, Phi without its first m directions, with
    eigenvalues c_i. In the eigenbasis, p = (q + k) / sqrt 2, n = (q - k) / sqrt 2,

    .. math:: p_i = p_i(0) e^{c_i s}, \quad n_i = n_i(0) e^{-c_i s}, \quad
        \dot s = 2 v, \quad v^2 = F(s) = v_0^2 - \tfrac12 (|q|^2 + |k|^2)
        + \tfrac12 \sum_i (p_i^2 + n_i^2), \qquad T = \int \frac{ds}{2 v} ,

    over the path to infinite s, which turns where F = 0; rows of keys and queries of
    rank R add up in F. The first head to be infinite takes the direction c_1 and ends
    the plateau. With u = (c_1 / a)^{1/3}, a = (e'He)(e'Se) for its direction e, half
    of the gain is reached at T - 1.2535 / (2 c_1 u); the others see C_m until v = u.
    T is of order 1 / (c_1 scale).

    Where H and E[ww'] commute and h_i phi_i falls with i, the error for rank one tends
    to 0 with the scale; otherwise it is O(1) or O(log 1 / scale). Merged heads grow
    together,

    .. math:: T = \frac{1}{4 |C_0|} \log \frac{(\sqrt 2 - 1)\, \gamma}{\sum_h a_h^2},
        \qquad a_h = \tfrac12 (v_h + \langle C_0, U_h\rangle / |C_0|),

    gamma = |C_0| / tr(E'HES) with E = C_0 / |C_0|, with error O(1), and o(1) where H
    and E[ww'] are multiples of I. A start that is too large for a plateau has the time
    NaN.

    Example:
        >>> population = LinearPopulation(jnp.diag(jnp.array([2.0, 1.0])))
        >>> eye = 0.01 * jnp.eye(2)[:, None]
        >>> found = head_times(Heads(jnp.full(2, 0.01), eye, eye), population, 8)
        >>> [round(float(time)) for time in found.times], found.heads.tolist()
        ([12, 49], [0, 1])

    Source: Zhang, Singh, Latham and Saxe (2025), for the plateaus.
    """
    check_dim(population, model.dim)
    if model.Q is None:
        return _merged(model, population, num_examples)
    heads, rank, dim = model.K.shape
    root, phi, W = whitened(population)
    H, (_, S) = population.input_cov, drive(population, num_examples)
    learned = np.arange(0, dim, rank)[:heads]

    def plateau(state, m):
        now, model, grown = state
        left = jnp.sqrt(jnp.where(jnp.arange(dim) >= m, phi, 0))
        left = root @ W * left[None]
        c, E = jnp.linalg.eigh(left @ left.T)
        top, e = c[-1], E[:, -1]
        size = jnp.cbrt(quotient(top, (e @ H @ e) * (e @ S @ e), 0))
        model, passed = _grow(model, grown, c, E, size)
        rest = jnp.where(grown, 0, jnp.abs(model.v))
        head = jnp.argmax(rest)
        reached = (rest[head] >= size) & (size > 0)
        left_over = quotient(1, 2 * top * rest[head], jnp.inf)
        early = quotient(_EARLY, 2 * top * size, 0)
        time = jnp.where(reached, now + passed + left_over - early, jnp.inf)
        time = jnp.where(time >= 0, time, jnp.nan)
        state = now + passed, model, grown | (jnp.arange(heads) == head)
        return state, (time, head)

    start = jnp.zeros((), model.dtype), model, jnp.zeros(heads, bool)
    _, (times, order) = jax.lax.scan(plateau, start, jnp.asarray(learned))
    return HeadTimes(times, order, jnp.asarray(learned))


def _merged(model: Heads, population: LinearPopulation, num_examples: Any) -> HeadTimes:
    C, S = drive(population, num_examples)
    size = jnp.sqrt(jnp.sum(C**2))
    E = C / size
    own = (model.v + einsum("ij,hij->h", E, model.K)) / 2
    a = jnp.trace(E.T @ population.input_cov @ E @ S)
    time = jnp.log((2**0.5 - 1) * size / (a * jnp.sum(own**2))) / (4 * size)
    time = jnp.where(time >= 0, time, jnp.nan)
    return HeadTimes(time[None], jnp.argmax(own**2)[None], jnp.zeros(1, int))


def _grow(
    model: Heads, grown: Array, c: Array, E: Array, size: Array
) -> tuple[Heads, Array]:
    """Moves the heads under a constant drive until one has the size, and the time.

    Each head has two unknowns, s and v; the steps are those of Runge and Kutta.
    """
    root = 2**0.5
    p, n = (model.Q + model.K) @ E / root, (model.Q - model.K) @ E / root
    free = jnp.where(grown, 0.0, 1.0)
    p_0, n_0 = (free[:, None] * jnp.sum(x**2, axis=1) for x in (p, n))

    def squares(s):
        up = jnp.exp(2 * c[None] * s[:, None])
        return p_0 * up, n_0 / up

    def slope(state):
        up, down = squares(state[0])
        return jnp.stack([2 * state[1], jnp.sum(c[None] * (up - down), axis=1)])

    def step(carry):
        state, t, steps = carry
        heads = state[1] ** 2 + jnp.sum(sum(squares(state[0])), axis=1)
        dt = _STEP / (2 * c[-1] * jnp.sqrt(jnp.max(heads)))
        first = slope(state)
        second = slope(state + dt / 2 * first)
        third = slope(state + dt / 2 * second)
        last = slope(state + dt * third)
        moved = state + dt / 6 * (first + 2 * second + 2 * third + last)
        return moved, t + dt, steps + 1

    def small(carry):
        return (jnp.max(jnp.abs(carry[0][1])) < size) & (carry[2] < _MOST)

    start = jnp.stack([0 * model.v, free * model.v])
    carry = start, jnp.zeros((), model.dtype), 0
    (s, v), t, _ = jax.lax.while_loop(small, step, carry)
    up = jnp.exp(c[None] * s[:, None])[:, None]
    Q, K = ((up * p + sign * n / up) @ E.T / root for sign in (1, -1))
    kept = grown[:, None, None]
    K, Q = jnp.where(kept, model.K, K), jnp.where(kept, model.Q, Q)
    return Heads(jnp.where(grown, model.v, v), K, Q), t
