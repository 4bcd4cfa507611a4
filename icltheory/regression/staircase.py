"""When the flow of several heads leaves its plateaus, from the weights at the start.

While the risk rests, the gradient in Gamma is constant and each head moves by itself.
That motion is solved: a head is a point in a potential, and reaches infinity at a
finite time, which is the end of the plateau to leading order in the start's size.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from icltheory._checks import count
from icltheory._core import Record, calculator
from icltheory._typing import Array, Float, Int
from icltheory.regression._block_moments import check_dim, informative
from icltheory.regression._linalg import einsum, quotient
from icltheory.regression.heads import Heads, drive, whitened
from icltheory.regression.population import LinearPopulation

__all__ = ["HeadTimes", "head_times"]

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


@calculator(integers=("num_examples",), population=informative, num_examples=count(1))
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
    T is of order 1 / (c_1 scale). The motion is integrated in a clock that runs with
    the largest head.

    Where H and E[ww'] commute and h_i phi_i falls with i, the error for rank one tends
    to 0 with the scale; otherwise heads turn after they have grown, and it is O(1) or
    O(log 1 / scale). Merged heads grow together,

    .. math:: T = \frac{1}{4 |C_0|} \log \frac{(\sqrt 2 - 1)\, \gamma}{\sum_h a_h^2},
        \qquad a_h = \tfrac12 (v_h + \langle C_0, U_h\rangle / |C_0|),

    gamma = |C_0| / tr(E'HES) with E = C_0 / |C_0|, with error O(1), and o(1) where H
    and E[ww'] are multiples of I.

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
        left = jnp.where(jnp.arange(dim) >= m, phi, 0)
        C = einsum("ij,jk,k,lk,lm->im", root, W, left, W, root)
        c, E = jnp.linalg.eigh((C + C.T) / 2)
        top, e = c[-1], E[:, -1]
        a = einsum("i,ij,j->", e, H, e) * einsum("i,ij,j->", e, S, e)
        size = jnp.cbrt(quotient(top, a, 0))
        model, passed = _grow(model, grown, c, E, size)
        rest = jnp.where(grown, 0, jnp.abs(model.v))
        head = jnp.argmax(rest)
        reached = (rest[head] >= size) & (size > 0)
        left_over = quotient(1, 2 * top * rest[head], jnp.inf)
        early = quotient(_EARLY, 2 * top * size, 0)
        time = jnp.where(reached, now + passed + left_over - early, jnp.inf)
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
    a = einsum("ji,jk,kl,li->", E, population.input_cov, E, S)
    time = jnp.log((2**0.5 - 1) * size / (a * jnp.sum(own**2))) / (4 * size)
    return HeadTimes(time[None], jnp.argmax(own**2)[None], jnp.zeros(1, int))


def _grow(
    model: Heads, grown: Array, c: Array, E: Array, size: Array
) -> tuple[Heads, Array]:
    """Moves the heads under a constant drive until one has the size, and the time.

    Each head has two unknowns, s and v; the steps are those of Runge and Kutta.
    """
    root = 2**0.5
    p = einsum("hri,ij->hrj", (model.Q + model.K) / root, E)
    n = einsum("hri,ij->hrj", (model.Q - model.K) / root, E)
    free = jnp.where(grown, 0.0, 1.0)[:, None]
    squares = free * jnp.sum(p**2, axis=1), free * jnp.sum(n**2, axis=1)

    def parts(s):
        up = jnp.exp(2 * c[None] * s[:, None])
        return squares[0] * up, squares[1] / up

    def slope(s, v):
        up, down = parts(s)
        return 2 * v, jnp.sum(c[None] * (up - down), axis=1)

    def largest(state):
        s, v, *_ = state
        return jnp.sqrt(jnp.max(v**2 + sum(map(lambda x: jnp.sum(x, 1), parts(s)))))

    def step(state):
        s, v, t, steps = state
        dt = _STEP / (2 * c[-1] * largest(state))
        first = slope(s, v)
        second = slope(s + dt / 2 * first[0], v + dt / 2 * first[1])
        third = slope(s + dt / 2 * second[0], v + dt / 2 * second[1])
        last = slope(s + dt * third[0], v + dt * third[1])
        slopes = zip(first, second, third, last, strict=True)
        in_s, in_v = ((a + 2 * b + 2 * c + d) / 6 for a, b, c, d in slopes)
        return s + dt * in_s, v + dt * in_v, t + dt, steps + 1

    def small(state):
        return (jnp.max(jnp.abs(state[1])) < size) & (state[3] < _MOST)

    v = free[:, 0] * model.v
    zero = jnp.zeros((), v.dtype)
    s, v, t, _ = jax.lax.while_loop(small, step, (0 * v, v, zero, 0))
    up = jnp.exp(c[None] * s[:, None])[:, None]
    p, n = p * up, n / up
    Q, K = (einsum("hrj,ij->hri", x, E) / root for x in (p + n, p - n))
    kept = grown[:, None, None]
    K, Q = jnp.where(kept, model.K, K), jnp.where(kept, model.Q, Q)
    return Heads(jnp.where(grown, model.v, v), K, Q), t
