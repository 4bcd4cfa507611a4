"""Definition A.1 and Lemmas H.1, H.2, H.5 and H.6 of Zhang, Wu and Bartlett (2024)."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from icltheory import regression as reg
from icltheory.linalg import trace_bound
from icltheory.regression import LinearPopulation
from tests import oracles_ltb as oracles


def semidefinite(rng, d, rank):
    B = rng.normal(size=(d, rank))
    return B @ B.T


# --- Definition A.1


@pytest.mark.statement("Zhang: Definition A.1")
def test_risk_is_that_of_the_whitened_problem(measured):
    """With x = H^1/2 z, w = beta* + Psi^1/2 xi: the whitened problem is the same."""
    risk = jax.jit(lambda model, *p: reg.risk(model, LinearPopulation(*p), 4))
    for seed in range(4):
        rng = np.random.default_rng([7, seed])
        H, mean, Psi, noise = oracles.singular_population(rng, 3)
        root = oracles.root(H)
        beta, Gamma = rng.normal(size=3), rng.normal(size=(3, 3))
        plain = risk(reg.GDBeta(beta, Gamma), H, mean, Psi, noise)
        white = risk(
            reg.GDBeta(root @ beta, root @ Gamma @ root),
            np.eye(3),
            root @ mean,
            root @ Psi @ root,
            noise,
        )
        error = abs(float(plain) - float(white)) / float(plain)
        measured("relative error", error, below=1e-12)


@pytest.mark.statement("Zhang: Assumption 3.1", "Zhang: Definition A.1")
def test_tasks_of_a_singular_prior_have_its_mean_and_covariance(measured):
    rng, n = np.random.default_rng(3), 40_000
    Psi = semidefinite(rng, 3, 2)
    problem = LinearPopulation(np.eye(3), np.array([1.0, -2.0, 0.5]), Psi, 0.1)
    w = np.asarray(jax.jit(lambda k: problem.sample(k, 1, n).w)(jax.random.key(0)))
    mean, null = np.asarray(problem.task_mean), np.linalg.eigh(Psi)[1][:, 0]
    assert np.abs((w - mean) @ null).max() < 1e-6 * np.linalg.norm(Psi)
    z = (w.mean(0) - mean) / np.sqrt(np.diag(Psi) / n)
    measured("z of the mean", z, below=5)
    spread = np.sqrt((Psi**2 + np.outer(np.diag(Psi), np.diag(Psi))) / n)
    z = (np.cov(w.T, bias=True) - Psi) / spread
    measured("z of the covariance", z, below=5)


# --- Lemma H.1


@pytest.mark.statement("Zhang: Lemma H.1")
def test_trace_of_a_product_is_at_most_that_of_the_singular_values(measured):
    rng = np.random.default_rng(0)
    for _ in range(50):
        A, B = rng.normal(size=(3, 5)), rng.normal(size=(5, 3))
        # by SVDs of NumPy, and against every pairing of the values
        s, t = (np.linalg.svd(X, compute_uv=False) for X in (A, B))
        np.testing.assert_allclose(trace_bound(A, B), s @ t, rtol=1e-12)
        assert all(s @ t >= s @ np.array(p) for p in itertools.permutations(t))
        ratio = abs(np.trace(A @ B)) / float(trace_bound(A, B))
        measured("trace over its bound", ratio)
        assert ratio <= 1 + 1e-12


@pytest.mark.statement("Zhang: Lemma H.1")
def test_von_neumanns_bound_is_attained_at_shared_vectors():
    rng = np.random.default_rng(1)
    A = rng.normal(size=(3, 5))
    U, _, Vt = np.linalg.svd(A, full_matrices=False)
    B = Vt.T @ np.diag([3.0, 2.0, 0.5]) @ U.T
    np.testing.assert_allclose(trace_bound(A, B), np.trace(A @ B), rtol=1e-12)
    with pytest.raises(ValueError, match="^B: expected"):
        trace_bound(A, A)


# --- Lemma H.2


@pytest.mark.statement("Zhang: Lemma H.2")
def test_products_of_semidefinite_matrices(measured):
    """The trace is >= 0; AB is semidefinite if and only if A and B commute."""
    rng = np.random.default_rng(2)
    for rank in (1, 2, 4):
        A, B = semidefinite(rng, 4, rank), semidefinite(rng, 4, rank)
        roots = oracles.root(A) @ oracles.root(B)
        np.testing.assert_allclose(np.trace(A @ B), np.sum(roots**2), rtol=1e-9)
        assert np.abs(A @ B - (A @ B).T).max() > 1e-3  # they do not commute
        axes = np.linalg.qr(rng.normal(size=(4, 4)))[0]
        first, second = (
            axes @ np.diag(rng.uniform(0, 2, 4)) @ axes.T for _ in range(2)
        )
        product = first @ second
        off = product - product.T
        measured("asymmetry of the product of commuting ones", off, below=1e-14)
        assert np.linalg.eigvalsh((product + product.T) / 2).min() > -1e-14
    # Whole numbers: a product of two semidefinite matrices that is no such matrix.
    A, B = np.array([[1, 0], [0, 0]]), np.array([[1, 1], [1, 1]])
    assert np.trace(A @ B) == 1
    assert (A @ B).tolist() == [[1, 1], [0, 0]]


# --- Lemmas H.5 and H.6


@pytest.mark.statement("Zhang: Lemma H.5")
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_images_and_projections_of_a_root(rank, measured):
    rng = np.random.default_rng([5, rank])
    H = semidefinite(rng, 3, rank)
    values, V = np.linalg.eigh(H)
    seen = V[:, -rank:]
    P = seen @ seen.T
    root, inverse = oracles.root(H), np.linalg.pinv(oracles.root(H), rcond=1e-8)
    for product in (root @ inverse, inverse @ root, H @ np.linalg.pinv(H, 1e-8)):
        np.testing.assert_allclose(product, P, atol=1e-8)
    v = rng.normal(size=(3, 100))
    forms = np.einsum("in,ij,jn->n", v, H, v)
    least = values[-rank] * np.sum((P @ v) ** 2, axis=0)
    assert np.all(forms >= least * (1 - 1e-10))
    e = V[:, -rank]
    measured("bound off where it is attained", e @ H @ e - values[-rank])
    np.testing.assert_allclose(e @ H @ e, values[-rank], rtol=1e-10)


@pytest.mark.statement("Zhang: Lemma H.6")
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_minimisers_are_projected_as_the_tensor_product_says(rank, measured):
    """Null space of Z -> HZH by its d^2 x d^2 matrix; the library never makes it."""
    rng = np.random.default_rng([6, rank])
    H = semidefinite(rng, 3, rank)
    full, halves = (np.kron(C, C) for C in (H, oracles.root(H)))
    image = [np.linalg.svd(K)[0][:, : rank**2] for K in (full, halves)]
    projectors = [U @ U.T for U in image]
    np.testing.assert_allclose(*projectors, atol=1e-9)
    problem = LinearPopulation(H, np.ones(3), np.eye(3), 0.5)
    best = reg.landscape.minimizers(problem, 3)
    Z = rng.normal(size=(3, 3))
    seen = (projectors[0] @ Z.ravel()).reshape(3, 3)
    centre = best.best
    model = reg.GDBeta(centre.beta, centre.Gamma + jnp.asarray(Z - seen))
    distance = best.distance(model)
    measured("distance after a step in the null space", distance[1])
    assert float(distance[1]) < 1e-9
    moved = reg.GDBeta(model.beta, model.Gamma + seen)
    np.testing.assert_allclose(best.distance(moved)[1], np.linalg.norm(seen), rtol=1e-9)
    values = np.linalg.eigvalsh(H)[-rank:]
    form = np.sum((oracles.root(H) @ Z @ oracles.root(H)) ** 2)
    assert form >= values[0] ** 2 * np.sum(seen**2) * (1 - 1e-10)
