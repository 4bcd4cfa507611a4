"""The best gradient steps for any population."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from icltheory.constructions import (
    gradient_descent,
    join_tokens,
    read_prediction,
)
from icltheory.regression import LinearPopulation, risks

H = np.diag([4.0, 1.0, 0.25]) + 0.1
PSI = np.diag([0.5, 1.0, 2.0])
MEAN = np.array([0.5, 0.0, -1.0])


def population(noise=0.0):
    return LinearPopulation(H, MEAN, PSI, noise)


@pytest.mark.parametrize(("steps", "noise"), [(1, 0.0), (2, 0.25), (3, 0.0)])
def test_isotropic_populations_have_the_exact_risk(steps, noise, measured):
    exact = risks.gradient_steps_optimum(5, 20, steps, noise_var=noise)
    task = LinearPopulation.isotropic(5, noise)
    key = jax.random.key(steps)
    found = risks.sampled_gradient_steps(
        task, key, 20_000, num_examples=20, steps=steps
    )
    off = (found.risk.mean / 5 - exact.risk) / (found.risk.standard_error / 5)
    measured("standard errors from the exact risk", float(abs(off)))
    assert abs(off) < 4
    np.testing.assert_allclose(found.step_sizes, exact.step_sizes, rtol=0.05)


@pytest.mark.parametrize("noise", [0.0, 0.5])
def test_one_step_is_the_best_multiple_of_the_identity(noise):
    """The risk of linear attention with the preconditioner eta I is a parabola."""
    task, N = population(noise), 7

    def exact(eta):
        return float(
            risks.linear_attention_risk(task, N, eta * np.eye(3), query_noise=False)
        )

    low, middle, high = (exact(eta) for eta in (0.0, 1.0, 2.0))
    bend = (high - 2 * middle + low) / 2
    slope = middle - low - bend
    least = low - slope**2 / (4 * bend)
    found = risks.sampled_gradient_steps(
        task, jax.random.key(0), 40_000, num_examples=N, steps=1
    )
    assert abs(found.risk.mean - least) < 4 * found.risk.standard_error
    assert found.step_sizes[0] == pytest.approx(-slope / (2 * bend), rel=0.05)


def test_the_stack_with_these_steps_has_this_risk(measured):
    task, N = population(0.1), 9
    found = risks.sampled_gradient_steps(
        task, jax.random.key(1), 20_000, num_examples=N, steps=3
    )
    stack = gradient_descent(found.step_sizes, 3)
    prompts = task.sample(jax.random.key(2), N, 40_000)

    @jax.jit
    @jax.vmap
    def predict(X, y, x):
        out = stack.apply(*join_tokens(X, y[:, None], x), scale=1 / N)
        return read_prediction(out.h_query[-1], 3)[0]

    # Against the noiseless label: the query's own noise is not counted.
    truth = jnp.einsum("bd,bd->b", prompts.x_query, prompts.w)
    errors = np.square(predict(prompts.X, prompts.y, prompts.x_query) - truth)
    spread = np.hypot(
        float(found.risk.standard_error), errors.std() / np.sqrt(len(errors))
    )
    off = abs(errors.mean() - float(found.risk.mean)) / spread
    measured("standard errors between stack and formula", float(off))
    assert off < 4


def test_more_steps_lower_the_risk_and_bayes_stays_below():
    task, key = population(0.25), jax.random.key(3)
    found = [
        float(
            risks.sampled_gradient_steps(
                task, key, 20_000, num_examples=12, steps=steps
            ).risk.mean
        )
        for steps in (1, 2, 3)
    ]
    bayes = risks.bayes_risk(task, key, 4096, num_examples=12, query_noise=False)
    assert found == sorted(found, reverse=True)
    assert found[-1] > float(bayes.mean[-1])


def test_without_signal_or_inputs_there_are_no_steps():
    d = np.zeros((2, 2))
    count = {"num_examples": 4, "steps": 2}
    quiet = LinearPopulation(np.eye(2), np.zeros(2), d, 0.1)
    found = risks.sampled_gradient_steps(quiet, jax.random.key(0), 8, **count)
    assert np.isnan(found.step_sizes).tolist() == [True, True]
    assert float(found.risk.mean) == 0
    assert found.risk.dof == 3  # half of the eight prompts choose the steps
    flat = LinearPopulation(d, np.zeros(2), np.eye(2), 0.1)
    with pytest.raises(ValueError, match="task: expected inputs that are not all 0"):
        risks.sampled_gradient_steps(flat, jax.random.key(0), 8, **count)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"steps": 0}, "steps: expected"),
        ({"num_examples": 0}, "num_examples: expected"),
        ({"num_prompts": 3}, "num_prompts: expected at least 4, got 3"),
    ],
)
def test_bad_input(change, message):
    given = {"num_prompts": 8, "num_examples": 4, "steps": 1} | change
    count = given.pop("num_prompts")
    with pytest.raises(ValueError, match=message):
        risks.sampled_gradient_steps(
            LinearPopulation.isotropic(2), jax.random.key(0), count, **given
        )
