"""The best gradient steps for any population."""

import jax
import numpy as np
import pytest

from icltheory.constructions import (
    gradient_descent,
    join_tokens,
    read_prediction,
)
from icltheory.regression import (
    LinearPopulation,
    LinearStep,
    Steps,
    optimum,
    risk,
)
from icltheory.regression.depth import sampled_steps

pytestmark = pytest.mark.statement("Depth: Best L steps")

H = np.diag([4.0, 1.0, 0.25]) + 0.1
PSI = np.diag([0.5, 1.0, 2.0])
MEAN = np.array([0.5, 0.0, -1.0])


def population(noise=0.0):
    return LinearPopulation(H, MEAN, PSI, noise)


@pytest.mark.parametrize(("steps", "noise"), [(1, 0.0), (2, 0.25), (3, 0.0)])
def test_isotropic_populations_have_the_exact_risk(steps, noise, measured):
    task, key = LinearPopulation.isotropic(5, noise), jax.random.key(steps)
    exact = optimum(Steps(steps), task, 20)
    risk, sizes = sampled_steps(task, 20, steps, key, 20_000)
    off = (risk.mean - exact.risk) / risk.standard_error
    measured("standard errors from the exact risk", float(abs(off)))
    assert abs(off) < 4
    np.testing.assert_allclose(sizes, exact.model.step_sizes, rtol=0.05)


@pytest.mark.parametrize("noise", [0.0, 0.5])
def test_one_step_is_the_best_multiple_of_the_identity(noise):
    """The risk of linear attention with the preconditioner eta I is a parabola."""
    task, N = population(noise), 7

    def exact(eta):
        return float(risk(LinearStep(eta * np.eye(3)), task, N))

    low, middle, high = (exact(eta) for eta in (0.0, 1.0, 2.0))
    bend = (high - 2 * middle + low) / 2
    slope = middle - low - bend
    least = low - slope**2 / (4 * bend)
    sampled, sizes = sampled_steps(task, N, 1, jax.random.key(0), 40_000)
    assert abs(sampled.mean - least) < 4 * sampled.standard_error
    assert sizes[0] == pytest.approx(-slope / (2 * bend), rel=0.05)
    best = optimum(Steps(1), task, N)
    assert float(best.risk) == pytest.approx(least, rel=1e-12)
    assert best.model.step_sizes[0] == pytest.approx(-slope / (2 * bend), rel=1e-12)


def test_the_stack_with_these_steps_has_this_risk(measured):
    task, N = population(0.1), 9
    found = optimum(Steps(3), task, N, key=jax.random.key(1), num_prompts=20_000)
    stack = gradient_descent(found.model.step_sizes, 3)
    prompts = task.sample(jax.random.key(2), N, 40_000)

    @jax.jit
    @jax.vmap
    def predict(X, y, x):
        out = stack.apply(*join_tokens(X, y[:, None], x), scale=1 / N)
        return read_prediction(out.h_query[-1], 3)[0]

    answers = predict(prompts.X, prompts.y, prompts.x_query)
    errors = np.square(answers - prompts.y_query)
    spread = np.hypot(float(found.standard_error), errors.std() / np.sqrt(len(errors)))
    off = abs(errors.mean() - float(found.risk)) / spread
    measured("standard errors between stack and formula", float(off))
    assert off < 4


def test_without_signal_or_inputs_there_are_no_steps():
    d = np.zeros((2, 2))
    drawn = {"key": jax.random.key(0), "num_prompts": 8}
    quiet = LinearPopulation(np.eye(2), np.zeros(2), d, 0.1)
    found = optimum(Steps(2), quiet, 4, **drawn)
    assert np.isnan(found.model.step_sizes).tolist() == [True, True]
    assert float(found.risk) == np.float64(0.1)
    assert "on 4 draws" in found.certificate  # the other half gives the risk
    flat = LinearPopulation(d, np.zeros(2), np.eye(2), 0.1)
    with pytest.raises(ValueError, match="population: expected inputs that are not"):
        optimum(Steps(2), flat, 4, **drawn)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"family": Steps(0)}, "steps: expected"),
        ({"num_examples": 0}, "num_examples: expected"),
        ({"num_prompts": 3}, "num_prompts: expected at least 4, got 3"),
        ({"key": None}, "key: expected one to sample the inputs"),
    ],
)
def test_bad_input(change, message):
    given = {"family": Steps(2), "num_examples": 4, "key": jax.random.key(0)}
    with pytest.raises(ValueError, match=message):
        optimum(population=population(), **given | {"num_prompts": 8} | change)
