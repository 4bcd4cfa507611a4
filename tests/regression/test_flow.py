"""Flows as functions: solvers against each other, shapes, and bad input."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from icltheory import regression as reg
from icltheory.regression import (
    AttentionWeights,
    LinearPopulation,
    descend,
    flow,
    flow_bounds,
    flow_limit,
)
from icltheory.regression.flows import read_settings
from tests.oracles_ltb import random_population
from tests.raising import raises_one_line as raises

EYE = np.eye(2)
TIMES = np.array([0.0, 0.5, 3.0])


@functools.cache
def problem_of():
    return LinearPopulation(EYE, np.ones(2), EYE, 0.25)


@functools.cache
def nothing():
    return LinearPopulation(EYE, np.zeros(2), np.zeros((2, 2)), 0.0)  # tau = 0


def three():
    return LinearPopulation(np.eye(3), np.zeros(3), np.eye(3), 0.0)


@functools.cache
def a_step():
    return reg.GDBeta(np.zeros(2), 0.1 * EYE)


@functools.cache
def block():
    return jax.jit(lambda model: model.to_ltb())(a_step())


def drawn(seed, dim=2):
    rng = np.random.default_rng([65, seed])
    start = reg.GDBeta(rng.normal(size=dim), rng.normal(size=(dim, dim)))
    return LinearPopulation(*random_population(rng, dim)), start


# --- what the functions are


@pytest.mark.slow
@pytest.mark.parametrize("solver", ["explicit", "implicit"])
def test_solvers_agree_on_gd_beta(solver):
    problem, start = drawn(0)
    tight = {"rtol": 1e-10, "atol": 1e-12}
    path, other = (
        flow(start, problem, 4, TIMES, solver=name, **tight)
        for name in ("exponential", solver)
    )
    np.testing.assert_allclose(other.model.beta, path.model.beta, atol=1e-8)
    np.testing.assert_allclose(other.model.Gamma, path.model.Gamma, atol=1e-8)


def test_a_flow_taken_up_again_is_the_same_flow():
    problem, start = drawn(2)
    whole = flow(start, problem, 4, TIMES)
    half = reg.GDBeta(whole.model.beta[1], whole.model.Gamma[1])
    rest = flow(half, problem, 4, np.array([0.0, 1.0, 2.5]))
    np.testing.assert_allclose(rest.model.Gamma[2], whole.model.Gamma[2], atol=1e-6)
    np.testing.assert_allclose(rest.risk[0], whole.risk[1], rtol=1e-13)


@pytest.mark.slow
def test_times_may_begin_late_repeat_or_be_zero_alone():
    problem, start = drawn(3)
    late = flow(start, problem, 4, np.array([0.5, 0.5, 3.0]))
    whole = flow(start, problem, 4, TIMES)
    np.testing.assert_allclose(late.model.beta[0], whole.model.beta[1], atol=1e-6)
    np.testing.assert_array_equal(late.model.beta[0], late.model.beta[1])
    none = flow(start, problem, 4, np.zeros(1))
    assert none.succeeded
    np.testing.assert_allclose(none.model.Gamma[0], start.Gamma, atol=1e-14)


@pytest.mark.slow
def test_giving_up_is_a_flag_and_the_reached_part_stays():
    problem, start = drawn(4)
    path = flow(start, problem, 4, TIMES, max_steps=5)
    assert not path.succeeded
    assert path.num_steps == 5
    assert np.isfinite(path.risk[0])
    assert not np.isfinite(path.risk[-1])
    steep = descend(start, problem, 4, 50.0, 40)
    assert not steep.succeeded


@pytest.mark.slow
def test_numbers_do_not_recompile_and_problems_vectorise(caplog):
    problems, starts = zip(*(drawn(seed) for seed in range(3)), strict=True)
    flow(starts[0], problems[0], 4, TIMES, rtol=1e-7)
    with jax.log_compiles():
        single = [
            flow(s, p, M, TIMES + 0.1, rtol=1e-7)
            for p, M, s in zip(problems, (4, 5, 6), starts, strict=True)
        ]
    assert "of program" not in caplog.text
    stack = jax.tree.map(lambda *leaves: jnp.stack(leaves), *problems)
    start = jax.tree.map(lambda *leaves: jnp.stack(leaves), *starts)
    together = jax.vmap(lambda p, M, s: flow(s, p, M, TIMES + 0.1, rtol=1e-7))(
        stack, jnp.array([4, 5, 6]), start
    )
    for i, path in enumerate(single):
        np.testing.assert_allclose(
            together.model.Gamma[i], path.model.Gamma, atol=1e-10
        )


@pytest.mark.slow
def test_float32_stays_float32():
    small = jax.tree.map(lambda a: jnp.asarray(a, jnp.float32), drawn(5))
    with jax.enable_x64(False):
        problem, start = jax.tree.map(lambda a: jnp.asarray(np.asarray(a)), small)
        path = flow(start, problem, 4, np.float32([0.0, 0.5, 2000.0]))
        assert path.succeeded
        assert path.model.Gamma.dtype == jnp.float32
    least = reg.optimum(reg.LTB, problem, 4).risk
    np.testing.assert_allclose(path.risk[-1], least, rtol=1e-5)


@pytest.mark.slow
def test_a_far_mean_costs_nothing_where_all_is_isotropic():
    # the direction of the start is an axis, so that the coupling is diagonal
    problem = LinearPopulation(np.eye(25), 10 * np.ones(25), np.eye(25), 0.25)
    start = reg.GDBeta(np.zeros(25), np.zeros((25, 25)))
    path = flow(start, problem, 40, np.array([0.0, 1e3]))
    assert path.succeeded
    assert path.num_steps < 600
    assert path.excess[-1] < 1e-12


@pytest.mark.slow
def test_nothing_moves_where_there_are_no_inputs():
    problem = LinearPopulation(np.zeros((2, 2)), np.ones(2), EYE, 0.25)
    path = flow(a_step(), problem, 4, TIMES)
    np.testing.assert_allclose(path.model.Gamma[-1], a_step().Gamma, atol=1e-15)
    bounds = jax.jit(flow_bounds)(a_step(), problem, 4, TIMES)
    np.testing.assert_array_equal(bounds.Gamma, 0)
    np.testing.assert_array_equal(bounds.excess, 0)


@pytest.mark.slow
def test_a_stiff_problem_of_25_dimensions_takes_few_steps():
    rng = np.random.default_rng(0)
    axes = np.linalg.qr(rng.normal(size=(25, 25)))[0]
    H = axes @ np.diag(np.geomspace(1, 1e-3, 25)) @ axes.T
    problem = LinearPopulation((H + H.T) / 2, rng.normal(size=25), np.eye(25), 0.25)
    start = reg.GDBeta(np.zeros(25), np.zeros((25, 25)))
    path = flow(start, problem, 40, np.array([0.0, 1e9]))
    assert path.succeeded
    assert path.num_steps < 3_000
    assert path.excess[-1] < 1e-12


def test_a_flow_of_attention_is_that_of_effective_parameters():
    """With noise and an unequal start, by another solver on all of c, p, v, U, u."""
    H = np.diag([1.3, 0.6])
    noisy = LinearPopulation(H, np.zeros(2), EYE, 0.3)
    start = AttentionWeights(-0.9, np.array([[0.3, 0.1], [-0.2, 0.4]]))
    times, tight = np.array([0.5, 60.0]), {"rtol": 1e-10, "atol": 1e-12}
    path = flow(start, noisy, 4, times, **tight)
    other = flow(start.effective(), noisy, 4, times, **tight).model
    np.testing.assert_allclose(path.model.u, other.v, atol=1e-8)
    np.testing.assert_allclose(path.model.U, other.U, atol=1e-8)
    end = flow_limit(start, noisy, 4)
    np.testing.assert_allclose(path.model.u[-1], end.u, atol=1e-6)
    np.testing.assert_allclose(path.model.U[-1], end.U, atol=1e-6)
    assert not flow_bounds(start, noisy, 4, times).holds


# --- bad input


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"problem": nothing}, "population: expected tau = tr(H Psi) + noise_var > 0"),
        ({"problem": three}, "population: expected dimension 2"),
        ({"num_examples": 0}, "num_examples: expected a whole number >= 1, got 0"),
        ({"times": np.array([1.0, 0.5])}, "times: expected increasing times from 0"),
        ({"times": np.array([-1.0, 0.5])}, "times: expected increasing times from 0"),
        ({"times": np.array([0.0, np.inf])}, "times: expected finite entries"),
        ({"times": np.zeros(0)}, "times: expected shape (T,) with T >= 1, got (0,)"),
    ],
)
def test_flows_and_rates_refuse_what_cannot_be(change, message):
    given = {"problem": problem_of, "num_examples": 4, "times": TIMES, **change}
    problem, *rest = given.pop("problem")(), *given.values()
    for model, run in ((a_step(), flow), (block(), flow), (a_step(), flow_bounds)):
        with raises(message):
            run(model, problem, *rest)


def test_flows_refuse_settings_that_mean_nothing():
    at = block()
    layer = reg.LSA(at.W_K, at.W_Q, at.W_P, at.W_V)
    for model, change, message in (
        (at, {"solver": "euler"}, "solver: expected one of 'auto', 'exponential'"),
        (at, {"rtol": 0.0}, "rtol: expected a finite value > 0, got 0.0"),
        (at, {"atol": -1.0}, "atol: expected a finite value > 0, got -1.0"),
        (at, {"max_steps": 0}, "max_steps: expected a positive integer, got 0"),
        (layer, {"solver": "exponential"}, "solver: expected 'explicit' or 'implicit'"),
    ):
        with raises(message):
            flow(model, problem_of(), 4, TIMES, **change)
    for run in (flow_limit, lambda *start: flow_bounds(*start, TIMES)):
        with raises("model: expected a GDBeta or AttentionWeights, whose limit is"):
            run(at, problem_of(), 4)


@pytest.mark.parametrize("drawn", [{}, {"key": jax.random.key(0), "batch_size": 2}])
def test_descents_refuse_what_cannot_be(drawn):
    for change, message in (
        ({"step_size": 0.0}, "step_size: expected a finite value > 0, got 0.0"),
        ({"steps": 0}, "num_steps: expected a positive integer, got 0"),
        ({"record_every": 3}, "num_steps: expected a multiple of record_every = 3"),
        ({"population": nothing()}, "population: expected tau = tr(H Psi) + noise_var"),
        ({"num_examples": 0}, "num_examples: expected"),
    ):
        given = {"population": problem_of(), "num_examples": 4, "step_size": 0.1}
        with raises(message):
            descend(a_step(), **given | {"steps": 10} | drawn | change)


def test_a_sampled_descent_needs_key_and_batch():
    for drawn, message in (
        (
            {"key": jax.random.key(0), "batch_size": 0},
            "batch_size: expected a positive",
        ),
        (
            {"key": jax.random.key(0)},
            "batch_size: expected a positive integer, got None",
        ),
        ({"batch_size": 2}, "key: expected one with batch_size, got None"),
    ):
        with raises(message):
            descend(a_step(), problem_of(), 4, 0.1, 10, **drawn)


def test_flows_of_attention_refuse_what_cannot_be():
    two, Theta = LinearPopulation.isotropic(2), EYE / 2**0.25
    start = AttentionWeights.balanced(two, 4, Theta, 0.5)
    flat = two.with_(input_cov=jnp.diag(jnp.array([1.0, 0.0])))
    small = AttentionWeights(jnp.array(0.1), start.U)
    definite = "population: expected a positive definite input_cov, got 0"
    for weights, population, message in (
        (start, flat, definite),
        (start, problem_of(), "population: expected task_mean = 0, got 1.0"),
        (start, two.with_(task_cov=2 * EYE), "population: expected task_cov = I, got"),
        (small, two, "model: expected u^2 - ||U||_F^2 >= 0, got -"),
    ):
        for run in (flow, flow_bounds):
            with raises(message):
                run(weights, population, 4, TIMES)
    for rest, message in (
        ((two, 0, TIMES), "num_examples: expected"),
        ((three(), 4, TIMES), "population: expected dimension 2, got 3"),
        ((two, 4, TIMES[::-1]), "times: expected increasing times from 0"),
    ):
        for run in (flow, flow_bounds):
            with raises(message):
                run(start, *rest)
    for population, root, scale, message in (
        (two, Theta, 3.0, "scale: expected scale^2 |G| sqrt(d) < 2, got 3.0"),
        (two, Theta, -0.1, "scale: expected a finite value > 0, got -0.1"),
        (two, EYE, 0.1, "Theta: expected |Theta Theta'|_F = 1, got 1.41421"),
        (flat, Theta, 0.5, definite),
    ):
        with raises(message):
            AttentionWeights.balanced(population, 4, root, scale)
    with raises("u: expected shape (), got (1,)"):
        AttentionWeights(jnp.ones(1), EYE)
    with raises("U: expected shape (d, d), got (2, 3)"):
        AttentionWeights(1.0, jnp.ones((2, 3)))


@pytest.mark.parametrize(
    ("dtype", "expected"), [("float64", (1e-6, 1.8e-12)), ("float32", (3.5e-4, 6.4e-6))]
)
def test_tolerances_that_are_not_given_are_those_of_the_dtype(dtype, expected):
    found = read_settings("explicit", None, None, 10, dtype)
    np.testing.assert_allclose(found, expected, rtol=0.03)
    given = read_settings("explicit", 0.01, 0.02, 10, dtype)
    np.testing.assert_allclose(given, (0.01, 0.02), rtol=1e-6)
