"""The cost of finite pretraining: tr(A^-1 B) by quadrature, and fits to T prompts."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

from icltheory import regression as reg
from icltheory.regression import GDBeta, LinearPopulation, LinearStep
from icltheory.regression.pretraining import leading_excess
from icltheory.statistics import Estimate
from tests.oracles import gaussian_grid

SKEW = np.array([[1.0, 0.3], [0.3, 0.5]])
PROBLEMS = {
    (1, 3): (np.array([[0.8]]), [0.7], [[1.3]], 0.4),
    (2, 1): (SKEW, [1.0, -0.5], np.diag([1.0, 0.6]), 0.3),
    (2, 2): (np.diag([1.2, 0.4]), [0.2, 0.9], [[0.7, 0.2], [0.2, 1.5]], 0.15),
}


def problem(dim, N):
    H, mean, Psi, noise_var = PROBLEMS[dim, N]
    return LinearPopulation(H, np.array(mean), np.array(Psi), noise_var)


def quadrature(model, population, N):
    """E e^2 g'A^+ g, A half the Hessian of the exact risk, g the gradient of f."""
    flat, back = ravel_pytree(model)
    risk = jax.jit(lambda theta: back(theta).exact_risk(population, jnp.asarray(N)))
    hessian = jax.hessian(risk)(flat) / 2
    A = np.linalg.pinv(np.asarray(hessian), rcond=1e-9, hermitian=True)
    d = population.dim
    inputs, tasks = (
        np.linalg.cholesky(np.asarray(getattr(population, name)))
        for name in ("input_cov", "task_cov")
    )
    z, weights = gaussian_grid(
        [5] * (d + N * (d + 1))
    )  # w, X and the noise: degree 8 at most
    w = np.asarray(population.task_mean) + z[:, :d] @ tasks.T
    X = z[:, d : d + N * d].reshape(-1, N, d) @ inputs.T
    noise = np.sqrt(float(population.noise_var)) * z[:, d + N * d :]
    y = np.einsum("snd,sd->sn", X, w) + noise

    @jax.jit
    def at(x):
        def one(X, y, w):
            f, g = jax.value_and_grad(lambda theta: back(theta).predict(X, y, x))(flat)
            missed = (w @ x - f) ** 2 + population.noise_var
            return missed * (g @ A @ g)

        return jnp.sum(weights * jax.vmap(one)(X, y, w))

    queries, shares = gaussian_grid([3] * d)
    return sum(s * at(x) for x, s in zip(queries @ inputs.T, shares, strict=True))


def best(family, population, N):
    found = reg.optimum(family, population, N).model
    return found.effective() if family is reg.LTB else found


@functools.partial(jax.jit, static_argnums=0)
def computed(family, population, N):
    cost = leading_excess(family, population, N)
    return cost.optimum_risk, cost.constant


def assert_quadrature_agrees(family, size, measured):
    population, N = problem(*size), size[1]
    least, constant = map(float, computed(family, population, N))
    model = best(family, population, N)
    exact = float(quadrature(model, population, N))
    measured("relative error of tr(A^-1 B)", abs(constant / exact - 1))
    assert constant == pytest.approx(exact, rel=1e-9)
    assert least == pytest.approx(float(reg.risk(model, population, N)), rel=1e-12)


SLOW = pytest.mark.slow


@pytest.mark.statement("Pretraining: cost of one step")
@pytest.mark.parametrize(
    "size", [(2, 1), *(pytest.param(s, marks=SLOW) for s in ((1, 3), (2, 2)))]
)
def test_cost_of_a_step_is_that_of_quadrature(size, measured):
    assert_quadrature_agrees(LinearStep, size, measured)


@pytest.mark.statement("Pretraining: cost of GD-beta and LTB")
@pytest.mark.parametrize(
    ("family", "size"),
    [
        (reg.LTB, (2, 1)),
        *(pytest.param(reg.LTB, s, marks=SLOW) for s in ((1, 3), (2, 2))),
        *(pytest.param(GDBeta, s, marks=SLOW) for s in PROBLEMS),
    ],
)
def test_cost_of_a_block_is_that_of_quadrature(family, size, measured):
    assert_quadrature_agrees(family, size, measured)


@pytest.mark.statement("Pretraining: cost of GD-beta and LTB")
@pytest.mark.slow
def test_an_lsa_without_a_mean_is_a_block_without_a_start(measured):
    """Its optimum is a step; the gradients are those of an LTB whose c is 0."""
    population = problem(2, 1).with_(task_mean=np.zeros(2))
    model = best(reg.LTB, population, 1)
    fixed = jax.tree.map(jnp.zeros_like, model.c)

    class Attention(reg.EffectiveParameters):
        """Values and labels are free, the read-out is not."""

        def answer(self, X, y, x_query):
            parts = fixed, self.p, self.v, self.U, self.u
            return reg.EffectiveParameters(*parts).answer(X, y, x_query)

        def exact_risk(self, population, k):
            parts = fixed, self.p, self.v, self.U, self.u
            return reg.EffectiveParameters(*parts).exact_risk(population, k)

    parts = model.c, model.p, model.v, model.U, model.u
    exact = float(quadrature(Attention(*parts), population, 1))
    constant = float(computed(reg.LSA, population, 1)[1])
    measured("relative error of tr(A^-1 B)", abs(constant / exact - 1))
    assert constant == pytest.approx(exact, rel=1e-9)


# --- fits to T prompts


def drawn(rng, fits, T, N, population):
    """Moments of prompts: S = X'X / N, h = X'y / N, t = |y|^2 / N, query and label."""
    H, Psi = (
        np.linalg.cholesky(np.asarray(getattr(population, name)))
        for name in ("input_cov", "task_cov")
    )
    d, scale = len(H), np.sqrt(float(population.noise_var))
    mean = np.asarray(population.task_mean)
    w = mean + rng.normal(size=(fits, T, d)) @ Psi.T
    X = rng.normal(size=(fits, T, N + 1, d)) @ H.T
    y = np.einsum("btnd,btd->btn", X, w) + scale * rng.normal(size=(fits, T, N + 1))
    X, y, x, label = X[..., :-1, :], y[..., :-1], X[..., -1, :], y[..., -1]
    S = np.einsum("btnd,btne->btde", X, X) / N
    return S, np.einsum("btnd,btn->btd", X, y) / N, np.mean(y**2, -1), x, label


def fitted(blocks, prompts, mean, Gamma, steps=4):
    """Gauss-Newton on the sum of squares from the optimum; the scale is fixed, v = 1.

    ``blocks``: values and labels are free (LTB), or follow the start (GD-beta).
    """
    S, h, t, x, label = prompts
    fits, d = len(h), len(mean)
    c, u = np.tile(mean, (fits, 1)), np.zeros((fits, d))
    p, U = -c, np.tile(Gamma.T, (fits, 1, 1))
    for _ in range(steps):
        moment = np.einsum("btde,be->btd", S, p) + h
        labels = np.einsum("bd,btd->bt", p, h) + t
        w = (
            c[:, None]
            + np.einsum("bji,btj->bti", U, moment)
            + labels[..., None] * u[:, None]
        )
        Ux = np.einsum("bef,btf->bte", U, x)
        in_p = np.einsum("btde,bte->btd", S, Ux)
        in_p = in_p + h * np.einsum("bd,btd->bt", u, x)[..., None]
        in_U = (moment[..., :, None] * x[..., None, :]).reshape(fits, -1, d * d)
        free = [x, in_p, labels[..., None] * x] if blocks else [x - in_p]
        F = np.concatenate([*free, in_U], axis=-1)
        left = np.einsum("bti,bt->bi", F, label - np.sum(w * x, -1))
        step = np.linalg.solve(np.einsum("bti,btj->bij", F, F), left[..., None])[..., 0]
        c, U = c + step[:, :d], U + step[:, -d * d :].reshape(U.shape)
        p = p + step[:, d : 2 * d] if blocks else -c
        u = u + step[:, 2 * d : 3 * d] if blocks else u
    return c, p, np.ones(fits), U, u


@pytest.mark.statement("Pretraining: cost of GD-beta and LTB")
@pytest.mark.slow
@pytest.mark.parametrize("family", [GDBeta, reg.LTB])
@pytest.mark.parametrize(
    ("N", "H", "mean", "noise_var"),
    [
        (12, SKEW, [1.0, -2.0], 0.3),
        (20, np.eye(2), [0.0, 0.5], 1.0),
        (8, np.diag([1.0, 0.4]), [0.0, 0.0], 0.1),
    ],
)
def test_excess_of_fits_is_the_constant_over_T(family, N, H, mean, noise_var, measured):
    population = LinearPopulation(H, np.array(mean), np.diag([1.0, 0.6]), noise_var)
    least, constant = computed(family, population, N)
    Gamma = np.asarray(best(GDBeta, population, N).Gamma)
    rng, T, excess = np.random.default_rng(0), 16_000, []
    risk = jax.jit(
        jax.vmap(
            lambda *parts: reg.risk(reg.EffectiveParameters(*parts), population, N)
        )
    )
    for _ in range(30):
        prompts = drawn(rng, 4, T, N, population)
        parts = fitted(family is reg.LTB, prompts, np.array(mean), Gamma)
        excess.append(np.asarray(risk(*parts)) - float(least))
    found = Estimate.of(np.concatenate(excess) * T)
    z = (found.mean - constant) / found.standard_error
    measured("z of T (R_T - R*)", z, below=3)
