"""Gaussian moments behind the exact risks (Lemmas H.3, H.4), integrated exactly."""

import jax
import numpy as np
import pytest

from tests.oracles import gaussian_grid
from tests.regression.oracles_ltb_rates import (
    empirical_product_moment,
    random_cov,
    root,
)

DIM = 2


@pytest.fixture(params=[1, 2, 3])
def example(request):
    """Matrices, and the Gram matrices X'X of all points of an exact grid."""
    M = request.param
    rng = np.random.default_rng(M)
    H = random_cov(rng, DIM, 1 if M == 3 else None)
    A, C = rng.normal(size=(2, DIM, DIM))
    nodes, weights = gaussian_grid([3] * (M * DIM))
    X = nodes.reshape(-1, M, DIM) @ root(H)
    gram = np.einsum("nmi,nmj->nij", X, X)
    return M, H, A, C, gram, lambda values: np.tensordot(weights, values, 1)


def agree(measured, got, expected, name="relative error"):
    measured(name, np.abs(got - expected).max() / np.abs(expected).max(), below=1e-13)


@pytest.mark.statement("Zhang: Lemma H.4")
def test_gram_matrix_between_which_a_matrix_stands(example, measured):
    M, H, A, _, gram, mean = example
    got = mean(np.einsum("nij,jk,nkl->nil", gram, A, gram))
    last = M * np.trace(H @ A) * H
    agree(measured, got, M**2 * H @ A @ H + M * H @ A.T @ H + last)
    # for a symmetric matrix the first two terms are one
    B = A + A.T
    got = mean(np.einsum("nij,jk,nkl->nil", gram, B, gram))
    agree(measured, got, M * (M + 1) * H @ B @ H + M * np.trace(H @ B) * H)


@pytest.mark.statement("Zhang: Lemma H.4")
def test_gram_matrix_times_its_trace_with_a_matrix(example, measured):
    M, H, A, C, gram, mean = example
    traces = np.einsum("nij,ji->n", gram, A)
    got = mean(traces[:, None, None] * gram)
    agree(measured, got, M**2 * np.trace(H @ A) * H + M * H @ (A + A.T) @ H)
    A, C = A + A.T, C + C.T
    got = mean(np.einsum("nij,ji->n", gram, A) * np.einsum("nij,ji->n", gram, C))
    product = M**2 * np.trace(H @ A) * np.trace(H @ C)
    agree(measured, got, product + 2 * M * np.trace(H @ A @ H @ C))


@pytest.mark.statement("Zhang: Lemma H.4")
def test_the_index_sums_of_the_oracle_are_the_same_moment(example, measured):
    M, H, _, _, gram, mean = example
    got = mean(np.einsum("nij,nkl->nijkl", gram / M, gram / M))
    agree(measured, got, empirical_product_moment(H, M))


@pytest.mark.statement("Zhang: Lemma H.4")
def test_squared_norm_of_a_random_weight(measured):
    rng = np.random.default_rng(0)
    for rank in (1, 2):
        H, Psi = random_cov(rng, DIM), random_cov(rng, DIM, rank)
        nodes, weights = gaussian_grid([3] * DIM)
        w = nodes @ root(Psi)
        got = weights @ np.einsum("ni,ij,nj->n", w, H, w) ** 2
        Phi = root(H) @ Psi @ root(H)
        agree(measured, got, np.trace(Phi) ** 2 + 2 * np.trace(Phi @ Phi))


@pytest.mark.statement("Zhang: Lemma H.3")
def test_derivatives_of_traces(measured):
    rng = np.random.default_rng(0)
    X, A, B = rng.normal(size=(3, 3, 3))
    a, b = rng.normal(size=(2, 3))
    cases = (
        (lambda X: (A @ X @ B).trace(), A.T @ B.T),
        (lambda X: (X.T @ A @ X @ B).trace(), A @ X @ B + A.T @ X @ B.T),
        (lambda X: a @ X @ b, np.outer(a, b)),
    )
    for function, expected in cases:
        agree(measured, np.asarray(jax.grad(function)(X)), expected)
