"""Answers and derivatives of models in JAX, NumPy and PyTorch, and what follows."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from icltheory import microscope as ms
from icltheory import regression as reg

POPULATION = reg.LinearPopulation.isotropic(2, 0.25)
SHAPES = (6, 4, 2), (6, 4), (6, 2), (6,), (6, 2)
# Of NumPy, so that collecting the tests compiles nothing.
PROMPT = reg.Prompt(
    *(
        jnp.asarray(np.random.default_rng(i).normal(size=s))
        for i, s in enumerate(SHAPES)
    )
)


def smooth(X, y, x, np=np):
    """A function that is linear in nothing."""
    return np.sin(y @ (X @ x)) + np.sum(x**2) * y[0]


def derivatives(X, y, x):
    c = np.cos(y @ (X @ x))
    by_y = c * (X @ x)
    by_y[0] += x @ x
    return by_y, c * (X.T @ y) + 2 * x * y[0]


def batched(X, y, x):
    return np.array([smooth(*one) for one in zip(X, y, x, strict=True)])


MODELS = {
    "jax": lambda X, y, x: smooth(X, y, x, jnp),
    "numpy": ms.NumpyModel(smooth),
    "numpy, batched": ms.NumpyModel(batched, batched=True),
}


@pytest.mark.parametrize("name", MODELS)
def test_responses_are_the_derivatives(name):
    found = ms.responses(MODELS[name], PROMPT, batch_size=4)
    rows = [*zip(*map(np.asarray, (PROMPT.X, PROMPT.y, PROMPT.x_query)), strict=True)]
    close = {"rtol": 1e-7, "atol": 1e-8}  # of central differences, eps^(2/3)
    for s, (X, y, x) in enumerate(rows):
        by_y, by_x = derivatives(X, y, x)
        np.testing.assert_allclose(found.answers[s], smooth(X, y, x), rtol=1e-12)
        np.testing.assert_allclose(found.without_labels[s], 0, atol=1e-12)
        np.testing.assert_allclose(found.at_origin[s], 0, atol=1e-12)
        np.testing.assert_allclose(found.label_weights[s], by_y, **close)
        np.testing.assert_allclose(found.query_weights[s], by_x, **close)


def test_torch_uses_its_own_gradient():
    torch = pytest.importorskip("torch")

    def one(X, y, x):
        return torch.sin(y @ (X @ x)) + (x**2).sum() * y[0]

    def batch(X, y, x):
        inner = torch.einsum("bn,bnd,bd->b", y, X, x)
        return torch.sin(inner) + (x**2).sum(1) * y[:, 0]

    expected = ms.responses(MODELS["jax"], PROMPT)
    for model in (ms.TorchModel(one), ms.TorchModel(batch, batched=True)):
        found = ms.responses(model, PROMPT)
        for ours, theirs in zip(*map(jax.tree.leaves, (expected, found)), strict=True):
            np.testing.assert_allclose(theirs, ours, rtol=1e-10, atol=1e-12)
        ours, theirs = (reg.squared_errors(f, PROMPT) for f in (model, MODELS["jax"]))
        np.testing.assert_allclose(ours, theirs, rtol=1e-10)


@pytest.mark.parametrize("name", ["numpy", "numpy, batched"])
def test_a_model_outside_jax_is_a_predictor(name):
    options = {"key": jax.random.key(1), "num_prompts": 6, "batch_size": 3}
    ours, theirs = (
        reg.squared_errors(MODELS[one], POPULATION, 4, **options)
        for one in (name, "jax")
    )
    np.testing.assert_allclose(ours, theirs, rtol=1e-12)
    first = ms.NumpyModel(lambda X, y, x: y.sum()).predict_prefixes(np.eye(2), [1, 2])
    assert first.tolist() == [0, 1]


@pytest.mark.slow
def test_a_numpy_model_without_examples_has_no_label_weights():
    prompt = POPULATION.sample(jax.random.key(0), 0, 3)
    found = ms.responses(ms.NumpyModel(lambda X, y, x: x.sum()), prompt)
    assert found.label_weights.shape == (3, 0)


def test_a_numpy_model_responds_to_labels_that_are_all_0():
    prompt = eqx.tree_at(lambda p: p.y, PROMPT, 0 * PROMPT.y)
    found = ms.responses(ms.NumpyModel(lambda X, y, x: 1 + np.sin(y.sum())), prompt)
    np.testing.assert_allclose(found.label_weights, np.ones((6, 4)), rtol=1e-9)


def test_models_with_other_parameters_share_a_program():
    def function(w, X, y, x):
        return w * y.sum()

    first, second = (ms.WithParams(function, w) for w in (1.0, 2.0))
    assert jax.tree.structure(first) == jax.tree.structure(second)
    assert float(second.predict(PROMPT.X[0], PROMPT.y[0], PROMPT.x_query[0])) == (
        pytest.approx(2 * float(PROMPT.y[0].sum()))
    )


def test_a_wrong_shape_is_refused():
    model = ms.NumpyModel(lambda X, y, x: np.zeros(2))
    with pytest.raises(ValueError, match="expected one number per prompt"):
        ms.responses(model, PROMPT)
    # As a predictor it is called by JAX, whose own error would be many lines long.
    one = r"^what the model returns: expected one number per prompt, \(2,\), got .*$"
    for wrong in (model, ms.NumpyModel(lambda X, y, x: y[:1], batched=True)):
        with pytest.raises(ValueError, match=one):
            reg.estimate_risk(wrong, POPULATION, 4, key=jax.random.key(0))


@pytest.mark.slow
def test_risks_given_inputs_are_the_libraries():
    """Against the rule of regression, which averages the query in closed form."""
    shifted = POPULATION.with_(task_mean=jnp.array([1.0, -0.5]))
    rule = reg.Bayes(shifted)
    prompt = shifted.sample(jax.random.key(1), 4, 4000)
    found = ms.risk_given_inputs(ms.responses(rule, prompt), prompt, shifted)
    exact = reg.estimate_risk(rule, shifted, 4, key=jax.random.key(2))
    error = np.hypot(found.risk.standard_error, exact.standard_error)
    assert abs(found.risk.mean - exact.mean) < 4 * error
    total = found.bias.mean + found.mean.mean + found.variance.mean + found.noise
    np.testing.assert_allclose(found.risk.mean, total, rtol=1e-12)
    raw = reg.squared_errors(rule, prompt)
    assert found.risk.standard_error < 0.5 * np.std(raw) / np.sqrt(4000)
    # Bayes knows the mean: that part of the error is 0.
    assert found.mean.mean < 1e-20


@pytest.mark.slow
def test_the_bayes_gap_is_the_difference_of_the_risks():
    """The best step of size 1/N' on d = 2, N = 4, in closed form."""
    step = reg.LinearStep(4 / (4 + 2 + 1.25) * jnp.eye(2))
    gap = ms.bayes_gap(
        step, POPULATION, num_examples=4, key=jax.random.key(3), num_prompts=20_000
    )
    bayes = reg.estimate_risk(
        reg.Bayes(POPULATION), POPULATION, 4, key=jax.random.key(4), num_prompts=20_000
    )
    exact = float(reg.risk(step, POPULATION, 4)) - bayes.mean
    error = np.hypot(gap.standard_error, bayes.standard_error)
    assert abs(gap.mean - exact) < 4 * error


def test_sources_without_a_known_posterior_have_no_gap():
    with pytest.raises(ValueError, match="expected a LinearPopulation or a TaskPool"):
        ms.bayes_gap(
            reg.Zero(), reg.DecisionTree(2), num_examples=1, key=jax.random.key(0)
        )


@pytest.mark.slow
def test_exact_risks_vary_less_than_raw_errors():
    """Ridge with penalty 2, d = 5, N = 10: more than five times less variance."""
    population = reg.LinearPopulation.isotropic(5, 0.25)
    prompt = population.sample(jax.random.key(5), 10, 40_000)
    response = ms.responses(reg.Ridge(2.0), prompt, batch_size=4000)
    found = ms.risk_given_inputs(response, prompt, population).risk
    exact = reg.estimate_risk(
        reg.Ridge(2.0), population, 10, key=jax.random.key(6), num_prompts=40_000
    )
    z = (found.mean - exact.mean) / np.hypot(found.standard_error, exact.standard_error)
    assert abs(z) < 4
    raw = np.asarray(response.answers - prompt.y_query) ** 2
    assert (raw.std() / np.sqrt(40_000) / found.standard_error) ** 2 > 5
