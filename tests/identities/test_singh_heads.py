"""Several heads of linear attention: plateaus of the flow, their ends, removed heads.

The oracles are NumPy: risks by Isserlis' theorem, gradients by differences, stationary
points by a solver from random starts, paths by LSODA, and prompts drawn one by one.
"""

import functools
import itertools

import jax
import numpy as np
import pytest
from scipy.integrate import quad, solve_ivp
from scipy.optimize import least_squares

from icltheory import regression as reg
from icltheory.regression import Heads, LinearPopulation
from tests.oracles import z_score
from tests.regression import oracles_ltb_rates as oracles

DIM, N = 3, 10
SLOW = pytest.mark.slow
A = np.array([[0.9, 0.4, -0.2], [0.1, 0.8, 0.3], [-0.5, 0.2, 0.6]])
# H, E[ww'] as covariance and mean, noise variance.
SETTINGS = {
    "diagonal": (np.diag([1.6, 1.1, 0.7]), np.diag([1.0, 0.9, 0.8]), np.zeros(3), 0.3),
    "any tasks": (A @ A.T, A.T @ A + 0.2 * np.eye(3), np.zeros(3), 0.2),
    "with a mean": (np.diag([1.3, 0.9, 0.6]), A @ A.T / 2, np.array([0.4, 0, 1]), 0.0),
}
# One setting is quick, the others are slow.
QUICK = [
    pytest.param(name, marks=() if name == "any tasks" else SLOW) for name in SETTINGS
]
gradient = jax.jit(jax.grad(reg.risk), static_argnums=2)


def problem(name):
    """The population, H, E[ww'] and the noise variance."""
    H, Psi, mean, noise = SETTINGS[name]
    return LinearPopulation(H, mean, Psi, noise), H, Psi + np.outer(mean, mean), noise


def at_rest(name):
    """The population and the levels of its plateaus."""
    population = problem(name)[0]
    return population, np.asarray(reg.head_plateaus(population, N))


@functools.cache
def quadratic(name):
    """B and S of the risk, from the moments of a prompt."""
    _, H, M, noise = problem(name)
    return H @ M @ H, oracles.feature_second_moment(H, M, noise, N)


def slope(name, Gamma):
    """Minus the gradient in Gamma."""
    B, S = quadratic(name)
    return 2 * (B - SETTINGS[name][0] @ Gamma @ S)


def risk_of(name, Gamma):
    _, H, M, noise = problem(name)
    return oracles.one_step_risk(Gamma, H, M, noise, N)


def best_of_rank(name, m):
    """A best Gamma = QK of rank m, by alternating least squares."""
    H, (B, S) = SETTINGS[name][0], quadratic(name)
    K = np.random.default_rng(m).normal(size=(m, DIM))
    for _ in range(500):
        Q = np.linalg.solve(H, B @ K.T) @ np.linalg.inv(K @ S @ K.T)
        K = np.linalg.inv(Q.T @ H @ Q) @ Q.T @ B @ np.linalg.inv(S)
    return Q, K


@pytest.mark.statement("Singh: plateaus")
@pytest.mark.parametrize("name", QUICK)
def test_plateaus_are_the_least_risks_of_each_rank_and_stationary(name, measured):
    population, *_ = problem(name)
    levels = reg.head_plateaus(population, N)
    assert levels.shape == (DIM + 1,)
    for m in range(1, DIM + 1):
        Q, K = best_of_rank(name, m)
        error = levels[m] / risk_of(name, Q @ K) - 1
        measured("relative error of a level", error, below=1e-9)
        # m heads hold it, the fourth has weights but no value: nothing moves.
        pad = np.zeros((4 - m, 1, DIM))
        model = Heads(
            (np.arange(4) < m).astype(float),
            np.concatenate([K[:, None], pad]),
            np.concatenate([Q.T[:, None], pad]),
        )
        moved = jax.tree.leaves(gradient(model, population, N))
        assert max(np.abs(leaf).max() for leaf in moved) < 1e-6


@pytest.mark.statement("Singh: fixed points")
@pytest.mark.parametrize("name", QUICK)
def test_stationary_values_of_one_head_are_those_of_subsets(name, measured):
    population, levels = at_rest(name)
    allowed = np.append(levels[0], levels[0] - (levels[:-1] - levels[1:]))

    def equations(z):
        v, q, k = z[0], z[1:4], z[4:]
        D = slope(name, v * np.outer(q, k))
        return np.concatenate([[q @ D @ k], v * D @ k, v * D.T @ q])

    rng, seen = np.random.default_rng(0), set()
    for _ in range(30):
        found = least_squares(equations, rng.normal(size=7), xtol=1e-15, gtol=1e-15)
        if found.cost > 1e-20:
            continue
        v, q, k = found.x[0], found.x[1:4], found.x[4:]
        errors = np.abs(risk_of(name, v * np.outer(q, k)) - allowed)
        measured(
            "distance of a stationary value from the list", errors.min(), below=1e-6
        )
        seen.add(int(errors.argmin()))
    assert seen == set(range(DIM + 1))


@pytest.mark.statement("Singh: plateaus")
@pytest.mark.parametrize("name", SETTINGS)
def test_levels_are_the_errors_of_simulated_prompts(name, measured):
    population, H, _, noise = problem(name)
    _, Psi, mean, _ = SETTINGS[name]
    rng, count = np.random.default_rng(7), 60_000
    X = rng.normal(size=(count, N + 1, DIM)) @ np.linalg.cholesky(H).T
    w = mean + rng.normal(size=(count, DIM)) @ np.linalg.cholesky(Psi).T
    y = np.einsum("snd,sd->sn", X, w) + rng.normal(size=X.shape[:2]) * noise**0.5
    moment = np.einsum("snd,sn->sd", X[:, :N], y[:, :N]) / N
    for m, level in enumerate(np.asarray(reg.head_plateaus(population, N))[1:], 1):
        Q, K = best_of_rank(name, m)
        errors = (np.einsum("sd,de,se->s", X[:, N], Q @ K, moment) - y[:, N]) ** 2
        measured("z-score of a level", z_score(errors, level), below=3)


def path(name, model, end):
    """Times, risks and last weights of the flow by LSODA."""
    merged, shape = model.Q is None, model.K.shape
    H, (B, S) = SETTINGS[name][0], quadratic(name)

    def parts(z):
        v, rest = z[: len(model.v)], z[len(model.v) :].reshape(-1, *shape)
        return v, rest[0], rest[-1]

    def layers(K, Q):
        return K if merged else np.swapaxes(K, -1, -2) @ Q

    def speed(_, z):
        v, K, Q = parts(z)
        U, at = layers(K, Q), v[:, None, None]
        D = 2 * (B - H @ np.tensordot(v, np.swapaxes(U, 1, 2), 1) @ S)
        if merged:
            return np.append(np.tensordot(U, D.T, 2), at * D.T)
        KD, QD = K @ D.T, Q @ D
        moved = np.sum(Q * KD, (1, 2)), at * QD, at * KD
        return np.concatenate([np.ravel(part) for part in moved])

    start = np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(model)])
    found = solve_ivp(speed, (0, end), start, method="LSODA", rtol=1e-8, atol=1e-12)
    v, K, Q = (np.array(x) for x in zip(*map(parts, found.y.T), strict=True))
    Gamma = np.einsum("th,thba->tab", v, layers(K, Q))
    fit = np.sum(Gamma * (H @ Gamma @ S - 2 * B), (1, 2))
    return found.t, risk_of(name, np.zeros((DIM, DIM))) + fit


def crossings(name, model, predicted, levels):
    """Times at which the risk passes half of each step."""
    t, risks = path(name, model, 1.2 * predicted[-1] + 60)
    halves = [(levels[m] + levels[m + 1]) / 2 for m in range(len(levels) - 1)]
    return np.array([np.interp(-half, -risks, t) for half in halves])


def small(scale, rank, seed, heads=4):
    """Heads drawn in NumPy; the same for every scale."""
    rng = np.random.default_rng(seed)
    v, K, Q = rng.normal(size=heads), *rng.normal(size=(2, heads, rank, DIM))
    return Heads(scale * v, scale * K, scale * Q)


@pytest.mark.statement("Singh: time on a plateau")
@pytest.mark.parametrize("seed", [1, *(pytest.param(n, marks=SLOW) for n in (2, 3))])
def test_plateaus_end_at_the_predicted_times(seed, measured):
    population, levels = at_rest("diagonal")
    last = np.inf
    for scale in (1e-1, 1e-2, 1e-3):
        model = small(scale, 1, seed)
        found = reg.head_times(model, population, N)
        assert found.learned.tolist() == [0, 1, 2]
        seen = crossings("diagonal", model, found.times, levels)
        error = np.abs(seen / found.times - 1)
        assert error.max() < last
        last = error.max()
    measured("relative error of a time / scale", last / scale)
    measured("error of the first time", seen[0] - found.times[0])
    assert last < 10 * scale
    # Times are of order 1 / scale, and the error of the first is far below 1.
    assert found.times[0] > 0.05 / scale
    assert abs(seen[0] - found.times[0]) < 5e-3


@pytest.mark.statement("Singh: time on a plateau")
@pytest.mark.parametrize("name", [pytest.param("any tasks", marks=SLOW), "with a mean"])
def test_for_any_tasks_the_relative_error_vanishes_with_the_scale(name, measured):
    population, levels = at_rest(name)
    errors = []
    for scale in (1e-2, 1e-4):
        model = small(scale, 1, 2)
        found = reg.head_times(model, population, N)
        seen = crossings(name, model, found.times, levels)
        errors.append(np.abs(seen / found.times - 1).max())
    measured("relative error of a time at scale 1e-4", errors[1])
    assert errors[1] < min(5e-3, errors[0])


@pytest.mark.slow
@pytest.mark.statement("Singh: time on a plateau")
def test_the_first_time_is_the_integral_over_the_head_s_path(measured):
    name = "any tasks"
    population, *_ = problem(name)
    H, (B, S) = SETTINGS[name][0], quadratic(name)
    c, E = np.linalg.eigh(B)
    for seed in range(6):
        model = small(1e-3, 2, seed, heads=1)
        v = np.abs(model.v) + 3e-3  # v^2 > (|q|^2 + |k|^2) / 2: the path does not turn
        model = Heads(v, model.K, model.Q)
        p, n = ((model.Q[0] + s * model.K[0]) @ E / 2**0.5 for s in (1, -1))
        p, n = np.sum(p**2, 0), np.sum(n**2, 0)
        floor = v[0] ** 2 - (p.sum() + n.sum()) / 2
        assert floor > 0

        def rate(s, floor=floor, p=p, n=n):
            up = np.exp(2 * c * s)
            return 0.5 / np.sqrt(floor + 0.5 * np.sum(p * up + n / up))

        whole = quad(rate, 0, 40 / c[-1], limit=400, epsabs=1e-9, epsrel=1e-11)[0]
        e = E[:, -1]
        u = (c[-1] / (e @ H @ e * (e @ S @ e))) ** (1 / 3)
        x = (1 - 0.5**0.5) ** (1 / 3)
        early = 1 / x - quad(lambda z: z / (1 - z**3), 0, x, epsabs=1e-12)[0]
        wanted = whole - early / (2 * c[-1] * u)
        found = reg.head_times(model, population, N).times[0]
        measured("relative error", found / wanted - 1, below=1e-6)


@pytest.mark.statement("Singh: heads of rank R")
def test_heads_of_rank_two_rest_long_after_every_second_direction(measured):
    name = "diagonal"
    population, levels = at_rest(name)
    rests = []
    for scale in (1e-2, 1e-3):
        model = small(scale, 2, 3)
        found = reg.head_times(model, population, N)
        assert found.learned.tolist() == [0, 2]
        first, second, third = crossings(name, model, found.times, levels)
        np.testing.assert_allclose([first, third], found.times, rtol=200 * scale + 1e-4)
        rests.append(((second - first) * scale, (third - second) * scale))
    (short, long), (_, longer) = rests[-1], rests[0]
    measured("short rest / long rest at scale 1e-3", short / long)
    assert short < 0.02 * long  # of order log(1 / scale)
    assert abs(long / longer - 1) < 0.2  # of order 1 / scale


def time_near(t, risks, level):
    """Time between risks 0.001 above and below a level, on a path that falls."""
    begun, ended = np.interp([-level - 1e-3, -level + 1e-3], -risks, t)
    return ended - begun


@pytest.mark.statement("Singh: merged key-query")
def test_merged_heads_have_two_stationary_values_and_one_drop(measured):
    name = "diagonal"
    population, levels = at_rest(name)
    rng = np.random.default_rng(3)
    v, U = rng.normal(size=3), rng.normal(size=(3, DIM, DIM))
    rests = []
    for scale in (1e-3, 1e-5):
        t, risks = path(name, Heads(scale * v, scale * U), 30.0)
        assert abs(risks[-1] - levels[-1]) < 1e-6
        near = [time_near(t, risks, level) for level in levels]
        # It rests at the start, passes the levels between, and ends at the last.
        assert max(near[1:-1]) < 0.05
        rests.append(near[0])
    size = np.linalg.norm(quadratic(name)[0])
    error = (rests[1] - rests[0]) * 4 * size / np.log(1e4) - 1
    measured(
        "relative error of the rest's growth with log(1 / scale)", error, below=0.02
    )


@pytest.mark.statement("Singh: merged key-query")
def test_merged_heads_drop_at_the_predicted_time(measured):
    H, noise = 1.2 * np.eye(DIM), 0.3
    SETTINGS["round"] = H, 0.7 * np.eye(DIM), np.zeros(DIM), noise
    population, *_ = problem("round")
    levels = np.asarray(reg.head_plateaus(population, N))[[0, -1]]
    rng = np.random.default_rng(3)
    v, U = rng.normal(size=3), rng.normal(size=(3, DIM, DIM))
    for scale in (1e-2, 1e-3):
        model = Heads(scale * v, scale * U)
        found = reg.head_times(model, population, N)
        (seen,) = crossings("round", model, found.times, levels)
    measured("error of the time at scale 1e-3", seen - found.times[0], below=1e-4)


@pytest.mark.statement("Singh: removed heads")
@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("kind", ["separate", "merged"])
def test_removals_are_differences_of_the_risk(name, kind, measured):
    population, *_ = problem(name)
    rng = np.random.default_rng(5)
    v, K, Q = rng.normal(size=4), *rng.normal(size=(2, 4, 2, DIM))
    if kind == "merged":
        K, Q = rng.normal(size=(4, DIM, DIM)), None
    found = reg.head_removals(Heads(v, K, Q), population, N)
    U = K if Q is None else np.einsum("hra,hrb->hab", K, Q)
    whole = np.einsum("h,hba->ab", v, U)
    base = risk_of(name, whole)
    np.testing.assert_allclose(found.risk, base, rtol=1e-12)
    for h in range(4):
        left, sizes, right = np.linalg.svd(v[h] * U[h])
        parts = [(found.heads[h], v[h] * U[h])]
        parts += [
            (found.directions[h, i], sizes[i] * np.outer(left[:, i], right[i]))
            for i in range(found.directions.shape[1])
        ]
        for change, part in parts:
            wanted = risk_of(name, whole - part.T) - base
            measured("error of a change", change - wanted)
            np.testing.assert_allclose(change, wanted, rtol=1e-9, atol=1e-10 * base)


@pytest.mark.statement("Singh: removed heads")
def test_on_a_plateau_a_separate_head_is_its_gain_and_a_merged_one_its_share_squared():
    population, levels = at_rest("any tasks")
    gains = levels[:-1] - levels[1:]
    _, H, M, _ = problem("any tasks")
    root = oracles.root(H)
    phi, W = np.linalg.eigh(root @ M @ root)
    phi, axes = phi[::-1], np.linalg.inv(root) @ W[:, ::-1]
    size = phi * N / ((N + 1) * phi + phi.sum() + 0.2)
    found = reg.head_removals(
        Heads(size, axes.T[:, None], axes.T[:, None]), population, N
    )
    np.testing.assert_allclose(found.heads, gains, rtol=1e-9)
    # Mixed heads of the same layer are worth at least the least gain.
    for seed in range(5):
        mix = np.random.default_rng(seed).normal(size=(DIM, DIM))
        Q, K = axes * size @ mix, np.linalg.inv(mix) @ axes.T
        mixed = reg.head_removals(
            Heads(np.ones(DIM), K[:, None], Q.T[:, None]), population, N
        )
        assert np.all(mixed.heads >= gains[-1] * (1 - 1e-9))
        np.testing.assert_allclose(mixed.risk, levels[-1], rtol=1e-9)
    best = np.einsum("i,ai,bi->ab", size, axes, axes)
    a = np.array([0.9, 0.4, 0.2])
    share = a**2 / np.sum(a**2)
    exact = Heads(a, a[:, None, None] * best / np.sum(a**2))
    merged = reg.head_removals(exact, population, N)
    np.testing.assert_allclose(merged.heads, share**2 * gains.sum(), rtol=1e-9)


@pytest.mark.statement("Singh: removed heads")
def test_removing_a_direction_helps_under_a_shift_where_it_is_twice_too_large():
    (population, H, M, noise), helped = problem("diagonal"), []
    h, m = np.diag(H), np.diag(M)

    def best(N, noise):
        return N * m / ((N + 1) * h * m + np.sum(h * m) + noise)

    model = Heads(np.ones(1), np.diag(best(N, noise))[None])
    for length, other in itertools.product((1, 2, 4, 30), (0.1, 2.0, 6.0)):
        found = reg.head_removals(model, population.with_(noise_var=other), length)
        # Directions of the diagonal matrix in the order of its entries.
        order = np.argsort(-best(N, noise))
        lower = np.asarray(found.directions[0]) < 0
        too_large = (best(N, noise) > 2 * best(length, other))[order]
        assert lower.tolist() == too_large.tolist()
        helped += lower.tolist()
    assert 0 < sum(helped) < len(helped)
    assert np.all(reg.head_removals(model, population, N).directions > 0)
