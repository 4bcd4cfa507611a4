"""One layer is regression on features of the prompt: its theory from three moments."""

import functools
import itertools
import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from numpy.polynomial.hermite_e import hermegauss

from icltheory._checks import checked, finite, is_tracer, real
from icltheory._core import Record, exact_products
from icltheory._typing import Array, Float, PRNGKey, Scalar
from icltheory.regression._block_moments import weighted
from icltheory.regression._linalg import (
    as_floats,
    einsum,
    root_matrix,
    seen_eigenvalues,
    seen_inverse,
    symmetric_root,
)
from icltheory.regression.population import CorrelatedTasks, LinearPopulation
from icltheory.regression.predictors.base import (
    NoClosedForm,
    Predictor,
    check_gaussian,
    noted,
)


class FeatureMoments(Record):
    r"""Moments of a layer's features, from which its theory follows.

    .. math:: R(\Gamma) = c - 2 \langle \Gamma, b\rangle + \langle \Gamma, A
        \Gamma\rangle, \qquad A = E \phi\phi^\top, \quad b = E \phi y, \quad c = E y^2 .

    A is ``(p, p)``, of the flattened features; b has the shape of Gamma.

    Example:
        >>> moments = FeatureMoments(jnp.eye(2), jnp.array([1.0, 0.5]), 2.0)
        >>> moments.optimum().tolist(), float(moments.risk(moments.optimum()))
        ([1.0, 0.5], 0.75)
        >>> moments.flow(jnp.zeros(2), jnp.array([0.0, 30.0])).tolist()
        [[0.0, 0.0], [1.0, 0.5]]

    Source: Ahn et al. (2023); Wu et al. (2024), Theorem 3.1.
    """

    A: Any
    b: Any
    c: Any

    def risk(self, Gamma: Any) -> Scalar:
        """The risk, with the noise of the query if c has it."""
        G, b = jnp.ravel(Gamma), jnp.ravel(self.b)
        return self.c - 2 * jnp.sum(G * b) + weighted(self.A, G)

    def optimum(self) -> Array:
        """A^+ b, the least minimiser."""
        G = einsum("ij,j->i", seen_inverse(self.A), jnp.ravel(self.b))
        return jnp.reshape(G, jnp.shape(self.b))

    def excess(self, Gamma: Any) -> Scalar:
        """Risk above the optimum's, without cancellation."""
        return weighted(self.A, jnp.ravel(Gamma - self.optimum()))

    def flow(self, Gamma: Any, times: Any) -> Float[Array, "T ..."]:
        r"""Gradient flow from Gamma: :math:`\Gamma^* + e^{-2At}(\Gamma - \Gamma^*)`."""
        best = self.optimum()
        values, V = seen_eigenvalues(self.A)
        away = einsum("ji,j->i", V, jnp.ravel(jnp.asarray(Gamma) - best))
        decay = jnp.exp(-2 * jnp.outer(jnp.asarray(times), values))
        moved = einsum("ij,tj,j->ti", V, decay, away)
        return best[None] + jnp.reshape(moved, (-1, *jnp.shape(self.b)))


class OneLayer(Predictor):
    r"""A layer that is linear in its weights: regression on features of the prompt.

    .. math:: f = \Bigl\langle \Gamma, \sum_i \omega_i\, \varphi(x_i, y_i, x)
        \Bigr\rangle .

    Where phi is a polynomial its moments are exact: products of features of one and of
    two examples are averaged by a Gaussian rule that is exact to their degree. Other
    features are sampled.

    Args:
        phi: Features of one example, ``phi(x, y, x_query)``, an array of any shape.
        Gamma: Weights of this shape; ``None`` for the family of all.
        degree: Of phi as a polynomial, the larger of its degree in (x, y) jointly and
            in (y, x_query) jointly: y x_query x' has 2, y^2 x_query has 3. ``None`` if
            it is none. The cost grows as d^(2 degree); too small a degree is refused.
        weights: omega of the N examples; 1 / N each if ``None``.

    Example:
        >>> step = OneLayer(lambda x, y, x_query: y * jnp.outer(x_query, x), degree=2)
        >>> H = jnp.diag(jnp.array([1.5, 1.0, 0.7, 0.4]))
        >>> population = LinearPopulation(H, jnp.zeros(4), jnp.eye(4), 0.25)
        >>> moments = step.moments(population, 6)
        >>> best = moments.optimum()
        >>> print(*(f"{g:.4f}" for g in jnp.diag(best)), f"{moments.risk(best):.4f}")
        0.4181 0.5530 0.6857 0.9023 1.8759
        >>> age = jnp.abs(jnp.subtract.outer(jnp.arange(11), jnp.arange(11)))
        >>> drift = CorrelatedTasks(LinearPopulation.isotropic(2, 0.25), 0.9**age)
        >>> layer = OneLayer(step.phi, jnp.eye(2), degree=2)
        >>> best = layer.weight_moments(drift).optimum()
        >>> bool(best[9] > 2 * best[0])  # the task of the examples drifts
        True

    Source: Ahn et al. (2023); Li, Tarzanagh, Rawat, Fazel and Oymak (2025).
    """

    phi: Callable = eqx.field(static=True)
    Gamma: Any = None
    degree: int | None = eqx.field(static=True, default=None)
    weights: Any = None

    def __post_init__(self):
        for name in ("Gamma", "weights"):
            if getattr(self, name) is not None:
                (value,) = as_floats(real(name, getattr(self, name)))
                setattr(self, name, checked(name, value, finite))

    def features(self, X: Array, y: Array, x_query: Array) -> Array:
        """The sum over examples, of the shape of Gamma."""
        with noted("phi", X=X, y=y, x_query=x_query):
            found = jax.vmap(self.phi, (0, 0, None))(X, y, x_query)
        omega = 1 / max(len(y), 1) if self.weights is None else self.weights
        return jnp.tensordot(jnp.broadcast_to(omega, y.shape).astype(y.dtype), found, 1)

    def answer(self, X: Array, y: Array, x_query: Array) -> Array:
        """<Gamma, features>."""
        found = self.features(X, y, x_query)
        return jnp.sum(jnp.asarray(self.known_weights(), found.dtype) * found)

    def known_weights(self) -> Array:
        """Gamma; raises for a family, which has none."""
        if self.Gamma is None:
            raise ValueError(
                "Gamma: expected weights, got None: optimum(layer, population, "
                "num_examples).model has the best"
            )
        return self.Gamma

    def moments(
        self,
        source: Any,
        num_examples: Any = None,
        *,
        key: PRNGKey | None = None,
        num_prompts: int = 65536,
    ) -> FeatureMoments:
        """A, b and c of the features; sampled where a key is given.

        For a population and equal weights ``num_examples`` may be traced.
        """
        length = length_of(source, num_examples, self.weights)
        if key is not None:
            flat, y, shape = drawn_features(self, source, key, length, num_prompts)
            A = einsum("sp,sq->pq", flat, flat) / num_prompts
            b = jnp.reshape(einsum("sp,s->p", flat, y) / num_prompts, shape)
            return FeatureMoments(A, b, jnp.mean(y**2))
        self.check_exact(source, length)
        same, pairs, targets, label = self._pairs(source)
        if self.weights is None and len(targets) == 1:
            N = jnp.asarray(length, source.dtype)
            some = jnp.where(N > 0, 1 / jnp.maximum(N, 1), 0)
            A = some * same[0] + jnp.where(N > 0, 1 - some, 0) * pairs[0, 0]
            return FeatureMoments(A, jnp.where(N > 0, targets[0], 0), label)
        equal = jnp.full(length, 1 / max(length, 1), source.dtype)
        omega = equal if self.weights is None else self.weights.astype(source.dtype)
        both = jnp.outer(omega, omega) - jnp.diag(omega**2)
        shape = (length, length, *pairs.shape[2:])
        A = einsum("ij,ijpq->pq", both, jnp.broadcast_to(pairs, shape))
        own = jnp.broadcast_to(same, shape[1:])
        target = jnp.broadcast_to(targets, (length, *targets.shape[1:]))
        A = A + einsum("i,ipq->pq", omega**2, own)
        return FeatureMoments(A, jnp.tensordot(omega, target, 1), label)

    def weight_moments(self, source: Any, num_examples: Any = None) -> FeatureMoments:
        """The moments for the weights omega of the examples, Gamma as it is."""
        length = length_of(source, num_examples, None)
        self.check_exact(source, length)
        same, pairs, targets, label = self._pairs(source)
        G = jnp.ravel(jnp.asarray(self.known_weights(), source.dtype))
        own = jnp.broadcast_to(einsum("p,ipq,q->i", G, same, G), (length,))
        both = einsum("p,ijpq,q->ij", G, pairs, G)
        eye = jnp.eye(length, dtype=both.dtype)
        A = jnp.broadcast_to(both, (length, length)) * (1 - eye) + jnp.diag(own)
        b = einsum("ip,p->i", jnp.reshape(targets, (len(targets), -1)), G)
        return FeatureMoments(A, jnp.broadcast_to(b, (length,)), label)

    def check_exact(self, population: Any, num_examples: Any) -> None:
        """Raises :class:`NoClosedForm` where the moments are not known."""
        known = isinstance(population, LinearPopulation | CorrelatedTasks)
        if self.degree is None or not known:
            raise NoClosedForm(
                "predictor: expected features of a degree on a linear population, "
                f"got degree {self.degree} on {type(population).__name__}"
            )
        check_gaussian(getattr(population, "population", population))
        length_of(population, num_examples, self.weights)

    def _pairs(self, source: Any) -> tuple[Array, ...]:
        """Means of phi phi' in one example and in two, of phi y, and of y^2.

        ``(n, p, p)``, ``(n, n, p, p)``, ``(n, *phi)`` and ``()``; n = 1 if all examples
        have one task.
        """
        _check_degree(self.phi, self.degree, source.dim)
        tasks, R = source, None
        if isinstance(source, CorrelatedTasks):
            tasks, R = source.population, source.correlation
        return _pair_moments(tasks, R, self.phi, self.degree)

    def exact_risk(self, population: Any, k: Array) -> Array:
        """C - 2 <Gamma, b> + <Gamma, A Gamma>, without the query's noise."""
        found = self.moments(population, k).risk(self.known_weights())
        return found - population.noise_var


@functools.lru_cache(128)
def _check_degree(phi, degree, dim):
    """Raises unless phi is a polynomial of at most this degree, along two lines."""
    rng = np.random.default_rng(0)
    x, x_query, y = *rng.normal(size=(2, dim)), 1.5
    steps = 0.6 * np.arange(degree + 2) - 1.4  # of both signs, not symmetric
    lines = (((s * x, s * y, x_query), (x, s * y, s * x_query)) for s in steps)
    with jax.ensure_compile_time_eval(), noted("phi", x=x, y=y, x_query=x_query):
        found = [[phi(*map(jnp.asarray, p)) for p in pair] for pair in lines]
    values = np.asarray(found, np.float64)
    beyond = np.abs(np.diff(values, degree + 1, axis=0)).max()
    if beyond > 2.0 ** (degree + 1) * 4e-6 * np.abs(values).max():
        raise ValueError(
            f"degree: expected at least that of phi in (x, y) and in (y, x_query), got "
            f"{degree}; for a phi that is no polynomial leave degree out, and give key"
        )


@exact_products
@functools.partial(jax.jit, static_argnums=(2, 3))
def _pair_moments(population, R, phi, degree):
    d, dtype, mean = population.dim, population.dtype, population.task_mean
    roots = population.input_root, population.task_root
    inputs, tasks = map(root_matrix, roots)
    noise = jnp.sqrt(population.noise_var)
    drawn = 1 if R is None else 3  # independent parts of the tasks of i, j and query

    def over_tasks(f, i, j, degree):
        """Mean of f(w_i, w_j, w_query, x_query)."""
        root = jnp.ones((3, 1), dtype)
        if R is not None:
            pick = jnp.array([i, j, -1])
            root = symmetric_root(R[pick[:, None], pick])

        def at(z):
            free = jnp.reshape(z[d:], (drawn, d))
            w = mean[None] + einsum("ij,jk,kl->il", root, free, tasks)
            return f(*w, einsum("ij,j->i", inputs, z[:d]))

        return gaussian_mean(at, (1 + drawn) * d, degree, dtype)

    def over_example(f, w, x_query, degree):
        """Mean of f(x, y, x_query) given the task and the query."""

        def at(z):
            x = einsum("ij,j->i", inputs, z[:d])
            return f(x, jnp.sum(w * x) + noise * z[d], x_query)

        return gaussian_mean(at, d + 1, degree, dtype)

    def square(*example):
        found = phi(*example)
        return jnp.outer(found, found)

    def of_one(i):
        def own(w, _, __, x_query):
            return over_example(square, w, x_query, 2 * degree)

        def target(w, _, w_query, x_query):
            found = over_example(phi, w, x_query, degree)
            return found * jnp.sum(w_query * x_query)

        found = over_tasks(own, i, i, 2 * degree)
        return found, over_tasks(target, i, i, degree + 2)

    def of_two(i, j):
        def product(w, other, _, x_query):
            one, two = (over_example(phi, a, x_query, degree) for a in (w, other))
            return jnp.outer(one, two)

        return over_tasks(product, i, j, 2 * degree)

    n = jnp.arange(1 if R is None else len(R) - 1)
    own, target = jax.lax.map(of_one, n)
    pairs = jax.lax.map(lambda i: jax.lax.map(lambda j: of_two(i, j), n), n)
    spread = population.task_cov if R is None else R[-1, -1] * population.task_cov
    spread = spread + jnp.outer(mean, mean)
    label = einsum("ij,ji->", population.input_cov, spread) + population.noise_var
    return own, pairs, target, label


def drawn_features(layer, source, key, num_examples, num_prompts):
    """Flattened features of sampled prompts, their labels, and the features' shape."""
    prompts = source.sample(key, num_examples, num_prompts)
    found = jax.vmap(layer.features)(prompts.X, prompts.y, prompts.x_query)
    return jnp.reshape(found, (num_prompts, -1)), prompts.y_query, found.shape[1:]


def length_of(source: Any, num_examples: Any, weights: Any) -> Any:
    """Returns the number of examples, which a source or weights may fix."""
    fixed = [len(source.correlation) - 1] if isinstance(source, CorrelatedTasks) else []
    fixed += [] if weights is None else [len(weights)]
    for length in fixed:
        given = num_examples is not None and not is_tracer(num_examples)
        if given and num_examples != length:
            raise ValueError(f"num_examples: expected {length}, got {num_examples}")
        num_examples = length
    if num_examples is None:
        raise ValueError("num_examples: expected a count, got None")
    return num_examples


def gaussian_mean(f: Callable, dim: int, degree: int, dtype: Any) -> Array:
    """E f(z) for z ~ N(0, I), exact for a polynomial of at most this degree."""
    points, weights = (jnp.asarray(a, dtype) for a in _sparse_grid(dim, degree))
    return jnp.tensordot(weights, jax.vmap(f)(points), 1)


@functools.cache
def _sparse_grid(dim: int, degree: int) -> tuple[np.ndarray, np.ndarray]:
    """Points and weights of Smolyak's rule on Gauss-Hermite rules, exact to a degree.

    Weights have both signs. At most degree / 2 coordinates of a point are not 0.
    """
    top, found = degree // 2, {}
    rules = [hermegauss(n + 1) for n in range(top + 1)]
    for level in range(max(top - dim + 1, 0), top + 1):
        sign = (-1) ** (top - level) * math.comb(dim - 1, top - level)
        for chosen in itertools.combinations_with_replacement(range(dim), level):
            axes = sorted(set(chosen))
            parts = [rules[chosen.count(axis)] for axis in axes]
            for picks in itertools.product(*(range(len(p[0])) for p in parts)):
                at = [(a, p[0][k]) for a, p, k in zip(axes, parts, picks, strict=True)]
                where = tuple((a, round(z, 12)) for a, z in at if abs(z) > 1e-9)
                weight = math.prod(p[1][k] for p, k in zip(parts, picks, strict=True))
                weight *= sign / math.sqrt(2 * math.pi) ** len(parts)
                found[where] = found.get(where, 0.0) + weight
    points = np.zeros((len(found), dim))
    for row, where in enumerate(found):
        for axis, value in where:
            points[row, axis] = value
    return points, np.array(list(found.values()))
