"""The system of a kernel on a prompt, its flags, and what is refused."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from icltheory.regression.kernels import (
    KernelSystem,
    descent_weights,
    functional_descent,
    gaussian_process_risk,
    kernel_descent,
    kernel_descent_stack,
    kriging_risk,
)

of = jax.jit(KernelSystem.of, static_argnums=0)
descend = jax.jit(kernel_descent)
RNG = np.random.default_rng(0)
X, Y, ASKED = RNG.normal(size=(6, 3)), RNG.normal(size=6), RNG.normal(size=3)


def test_softmax_rows_are_normalised_over_the_query_too():
    system = of("softmax", X, ASKED)
    values = np.exp(np.vstack([X, ASKED]) @ np.vstack([X, ASKED]).T)
    weights = values / values.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(system.matrix, weights[:-1, :-1], rtol=1e-13)
    np.testing.assert_allclose(system.query_row, weights[-1, :-1], rtol=1e-13)
    assert system.approximate
    assert system.asymmetry < 1e-15  # of the kernel, not of its rows
    eigenvalues = np.sort(np.linalg.eigvals(np.asarray(system.matrix)).real)
    np.testing.assert_allclose(system.eigenvalues, eigenvalues, rtol=1e-9, atol=1e-12)


@pytest.mark.slow
def test_flags_say_what_the_spectrum_is():
    many = np.random.default_rng(1).normal(size=(16, 3))
    for kernel, expected in (("rbf", True), ("linear", True), ("relu", False)):
        system = of(kernel, many, ASKED)
        assert bool(system.positive_semidefinite) is expected, kernel
        assert not system.approximate
        r = float(system.largest_step)
        for factor in (0.99, 1.01):
            found = descend(system, many[:, 0], factor * r, np.array([1]))
            assert bool(found.converges) is (expected and factor < 1)
    smooth = of("rbf", many, ASKED)
    assert not descend(smooth, many[:, 0], -0.1, np.array([1])).converges
    crooked = of(lambda x, z: x @ z + x[0], X, ASKED)
    assert crooked.asymmetry > 0.1


def test_steps_beyond_the_largest_diverge_and_those_below_converge():
    system = of("exp", X / 2, ASKED / 2)
    largest, depths = float(system.largest_step), np.array([4000])
    below = descend(system, Y, 0.99 * largest, depths)
    beyond = descend(system, Y, 1.01 * largest, depths)
    assert np.abs(np.asarray(below.prediction) - float(below.limit)).max() < 10
    assert np.abs(beyond.prediction).max() > 1e10


def test_depths_may_be_traced_and_large():
    system = of("rbf", X, ASKED)
    r = float(system.largest_step) / 2
    weights = np.asarray(jax.jit(descent_weights)(system, r, np.array([0.0, 1e9])))
    assert np.all(weights[0] == 0)
    limit = descend(system, Y, r, np.array([1])).limit
    np.testing.assert_allclose(weights[1] @ Y, limit, rtol=1e-8)


def test_a_singular_kernel_needs_no_inverse():
    twice = np.vstack([X[:2], X[:2]])
    system = of("rbf", twice, X[0])
    labels = np.array([1.0, 2.0, 1.0, 2.0])
    r = float(system.largest_step) / 2
    steps = jax.jit(functional_descent, static_argnums=3)(system, labels, r, 40)
    closed = descend(system, labels, r, np.arange(41))
    np.testing.assert_allclose(closed.prediction, steps, atol=1e-14)
    assert system.positive_semidefinite
    assert float(closed.limit) == pytest.approx(1.0)


def test_impossible_settings_are_refused():
    system = of("rbf", X, ASKED)
    for run, message in (
        (lambda: KernelSystem.of("cosine", X, ASKED), "kernel: expected one of"),
        (lambda: KernelSystem.of("rbf", X, ASKED[:2]), "x_query: expected shape"),
        (lambda: descent_weights(system, 0.1, jnp.array([-1])), "depths: expected a"),
        (lambda: kernel_descent(system, Y[:3], 0.1, jnp.ones(1)), "y: expected shape"),
        (lambda: functional_descent(system, Y, 0.1, 0), "num_steps: expected a pos"),
        (
            lambda: gaussian_process_risk(jnp.ones((1, 3)), jnp.eye(3)),
            "covariance: exp",
        ),
        (lambda: kriging_risk(jnp.ones((2, 3))), "covariance: expected shape"),
        (
            lambda: kernel_descent_stack(jnp.ones(2), 3, "cosine"),
            "kernel: expected one",
        ),
    ):
        with pytest.raises(ValueError, match=message):
            run()


@pytest.mark.slow
def test_inputs_that_are_zero_or_of_half_precision():
    nothing = of("linear", np.zeros((2, 1)), np.ones(1))
    assert float(nothing.asymmetry) == 0
    low = (jnp.asarray(np.asarray(a, jnp.bfloat16)) for a in (X, ASKED))
    half = of("rbf", *low)
    assert half.matrix.dtype == jnp.float32
    assert half.positive_semidefinite
    with pytest.raises(ValueError, match="number of examples: expected a positive"):
        KernelSystem.of("linear", np.zeros((0, 1)), np.ones(1))


def test_the_asymmetry_of_a_kernel_is_relative_to_its_size():
    def small(x, z):
        return 1e-3 * (x @ z + x[0])

    K = np.array([[small(x, z) for z in np.asarray(X)] for x in np.asarray(X)])
    expected = np.abs(K - K.T).max() / np.abs(K).max()
    np.testing.assert_allclose(of(small, X, ASKED).asymmetry, expected, rtol=1e-12)
