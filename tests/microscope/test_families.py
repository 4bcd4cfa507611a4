"""Every row of the table of families: the path is the member, for all counts."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from icltheory import constructions
from icltheory import microscope as ms
from icltheory import regression as reg
from icltheory.microscope.families import Scale

ROWS = {row.name: row for row in ms.FAMILIES}
VALUES = {
    "gradient descent": [0.3],
    "GD++": [0.4, 0.05],
    "Newton": [0.9],
    "ridge": [0.7],
    "Lasso": [0.2],
    "delta rule": [0.1, 0.9],
    "kernel smoother": [1.1],
    "kernel ridge": [1.7, 0.3],
}
rng = np.random.default_rng(0)


def prompt(N, d=3):
    return rng.normal(size=(N, d)), rng.normal(size=N), rng.normal(size=d)


def answers_of(row, values, X, y, x):
    values = jnp.asarray(values, float)
    return jax.jit(lambda X, y, x: row.path(values, row.prepare(X, y), x))(X, y, x)


@pytest.mark.parametrize("name", ["gradient descent", "ridge", "nearest neighbours"])
def test_the_path_is_the_member(name):
    row, values = ROWS[name], VALUES.get(name, [])
    check(row, values, prompt(5))


@pytest.mark.slow
@pytest.mark.parametrize("num_examples", [0, 2, 5])
@pytest.mark.parametrize("name", ROWS)
def test_the_path_is_the_member_for_any_number_of_examples(name, num_examples):
    check(ROWS[name], VALUES.get(name, []), prompt(num_examples))


def check(row, values, given):
    path = answers_of(row, values, *given)
    assert path.shape == (len(row.counts),)
    for count, answer in zip(row.counts, path, strict=True):
        own = row.member(values, count).predict(*given)
        np.testing.assert_allclose(own, answer, rtol=1e-9, atol=1e-11)


def test_gd_plus_plus_is_the_hand_built_stack():
    X, y, x = prompt(5)
    found = answers_of(ROWS["GD++"], VALUES["GD++"], X, y, x)
    eta, gamma = (np.full(8, value) for value in VALUES["GD++"])
    stack = constructions.gd_plus_plus(eta, gamma, 3)
    out = stack.apply(*constructions.join_tokens(X, y[:, None], x), scale=1 / 5)
    read = constructions.read_prediction(out.h_query[1:], 3)[:, 0]
    np.testing.assert_allclose(found, read, rtol=1e-10)


def test_kernels_are_sums_over_examples():
    X, y, x = prompt(4)
    h = 1.3

    def k(a, b):
        return np.exp(-np.sum((a - b) ** 2) / (2 * h * h))

    K = np.array([[k(a, b) for b in X] for a in X])
    at = np.array([k(x, a) for a in X])
    ridge = at @ np.linalg.inv(K + 0.2 * np.eye(4)) @ y
    found = ms.KernelRidge(h, 0.2).predict(X, y, x)
    np.testing.assert_allclose(found, ridge, rtol=1e-12)
    found = ms.KernelSmoother(h).predict(X, y, x)
    np.testing.assert_allclose(found, at @ y / at.sum(), rtol=1e-12)


@pytest.mark.parametrize("make", [ms.KernelSmoother, lambda h: ms.KernelRidge(1.0, h)])
def test_kernels_refuse_what_is_not_positive(make):
    with pytest.raises(ValueError, match="expected a finite value > 0, got 0"):
        make(0.0)


def test_the_source_adds_what_is_optimal_for_it():
    population = reg.LinearPopulation.isotropic(2, 0.25)
    pool = reg.TaskPool(population, pool=jnp.ones((3, 2)))
    names = [row.name for row in ms.families_for(pool)]
    assert names[-2:] == ["Bayes without pool", "pool posterior"]
    assert ms.families_for(population)[-1].name == "Bayes"
    assert ms.families_for(reg.shifts.Shift("skewed", 4)) == ms.FAMILIES


def test_a_family_of_ones_own_is_one_more_row():
    gate = ms.Parameter("gate", 0.1, 1.0, 3, most=1.0)
    row = ms.Rule("gated", lambda gate: reg.Ridge(gate), parameters=(gate,))
    scale = Scale(1.0, 1.0, 1.0, 1)
    np.testing.assert_allclose(np.exp(gate.grid(scale)), [0.1, np.sqrt(0.1), 1.0])
    assert row.described([0.5], 1) == {"gate": 0.5}


def test_filters_of_ones_own_may_count_from_0():
    newton = ROWS["Newton"]
    known = {"parameters": newton.parameters, "counts": (0, 1, 4), "first": 0}
    check(ms.Filters("own", newton.filters, **known), VALUES["Newton"], prompt(5))
