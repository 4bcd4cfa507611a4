"""What ``identify`` says of algorithms that are known."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from icltheory import constructions
from icltheory import microscope as ms
from icltheory import regression as reg
from icltheory.microscope.analysis import analyse
from icltheory.microscope.families import fixed

POPULATION = reg.LinearPopulation.isotropic(5, 0.25)
ROWS = {row.name: row for row in ms.FAMILIES}
KEY = jax.random.key(0)


def named(*names):
    return [ROWS[name] for name in names]


def identify(model, candidates=None, source=POPULATION, **kwargs):
    given = {"num_examples": 8, "key": KEY, "num_prompts": 200} | kwargs
    return ms.identify(model, source, candidates, **given)


def three_steps(X, y, x):
    """A stack of linear attention, built by hand."""
    stack = constructions.gradient_descent(jnp.full(3, 0.35), 5)
    out = stack.apply(*constructions.join_tokens(X, y[:, None], x), scale=1 / len(y))
    return constructions.read_prediction(out.h_query[-1], 5)[0]


def test_three_layers_are_three_steps():
    found = identify(three_steps, named("gradient descent", "ridge"))
    best = found.best
    assert (best.name, best.parameters["steps"]) == ("gradient descent", 3)
    assert abs(best.parameters["step size"] - 0.35) < 1e-9
    assert best.distance.mean < 1e-20
    assert best.query_weights.mean < 1e-20
    assert abs(found.last.linearity_in_labels.mean - 1) < 1e-12
    assert "gradient descent (steps 3, step size 0.35), up to rounding" in str(found)
    assert found.last["ridge"].share.interval().low > 0.005


@pytest.mark.slow
def test_ridge_has_its_penalty():
    best = identify(reg.Ridge(0.7), named("ridge", "averaging")).best
    assert abs(best.parameters["penalty"] - 0.7) < 1e-6
    assert best.distance.mean < 1e-20


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "name", "parameters"),
    [
        (three_steps, "gradient descent", {"steps": 3, "step size": 0.35}),
        (reg.Ridge(0.7), "ridge", {"penalty": 0.7}),
        (reg.Newton(3), "Newton", {"steps": 3, "initial scale": 1.0}),
        (reg.Lasso(0.1), "Lasso", {"penalty": 0.1}),
        (reg.LeastSquares(), "least squares", {}),
        (reg.NearestNeighbors(2), "nearest neighbours", {"k": 2}),
        (ms.KernelSmoother(1.3), "kernel smoother", {"width": 1.3}),
        (ms.KernelRidge(1.7, 0.3), "kernel ridge", {"width": 1.7, "penalty": 0.3}),
        (reg.Bayes(POPULATION), "Bayes", {}),
        (reg.Averaging(), "averaging", {}),
        (ROWS["GD++"].member([0.3, 0.07], 2), "GD++", None),
    ],
)
def test_every_family_is_named_among_all(model, name, parameters):
    found = identify(model, num_prompts=400)
    best = found.best
    assert best.name == name, found.table()
    assert best.distance.mean < 1e-10
    if parameters is None:
        parameters = {"steps": 2, "step size": 0.3, "input step": 0.07}
    for key, value in parameters.items():
        assert abs(best.parameters[key] - value) < 1e-6, best
    others = [c for c in found.last.candidates if c.name not in found.last.closest]
    assert min(c.share.mean for c in others) > 1e-6


@pytest.mark.slow
def test_a_pool_posterior_is_itself():
    pool = reg.TaskPool(POPULATION, 6, jax.random.key(1))
    model = reg.DiscreteMMSE(pool.pool, 0.25)
    rows = [ROWS["ridge"], *ms.families_for(pool)[-2:]]
    found = identify(model, rows, pool, num_examples=4)
    assert found.best.name == "pool posterior"
    assert abs(found.best.parameters["noise_var"] - 0.25) < 1e-6
    assert found.best.distance.mean < 1e-12
    assert found.last.linearity_in_labels.mean < 0.9
    assert abs(found.last.linearity_in_query.mean - 1) < 1e-12


def test_an_exact_mixture_has_its_weights():
    rules = {"ridge": reg.Ridge(1.0), "one": reg.Averaging(), "zero": reg.Zero()}

    def model(X, y, x):
        return 0.6 * rules["ridge"].answer(X, y, x) + 0.3 * jnp.mean((X @ x) * y)

    found = identify(model, rules).last
    for name, weight in {"ridge": 0.6, "one": 0.3, "zero": 0.1}.items():
        assert abs(found[name].weight - weight) < 1e-9
        low, high = found[name].weight_interval
        assert low - 1e-9 <= weight <= high + 1e-9
    assert found.unexplained.mean < 1e-18


def test_the_lasso_is_not_linear_in_the_labels():
    found = identify(reg.Lasso(0.3), {"zero": reg.Zero()}).last
    assert found.linearity_in_labels.interval().high < 0.999
    assert abs(found.linearity_in_query.mean - 1) < 1e-12


def test_nothing_linear_explains_a_nearest_neighbour():
    found = identify(reg.NearestNeighbors(1), named("ridge", "nearest neighbours"))
    assert found.best.parameters == {"k": 1}
    assert found.best.distance.mean == 0
    assert found.last["ridge"].share.interval().low > 0.3
    assert "No candidate that is linear in the query explains it" in found.summary
    assert abs(found.last.linearity_in_query.mean) < 1e-12
    # Not said where a linear rule does explain it.
    assert "No candidate" not in identify(three_steps, named("ridge")).summary


@pytest.mark.slow
def test_what_no_candidate_explains_is_the_part_that_is_none():
    """An even function of the query is orthogonal to what is linear in it."""

    def model(X, y, x):
        return reg.Ridge(1.0).answer(X, y, x) + jnp.abs(x[0])

    given = {"num_prompts": 4000, "num_examples": 8}
    found = identify(model, {"ridge": reg.Ridge(1.0), "zero": reg.Zero()}, **given)
    part = found.last.unexplained
    expected = 1 / (found.last.variance)  # E x_1^2 = 1: the mean is not removed from it
    assert abs(part.mean - expected) < 4 * part.standard_error
    assert abs(found.last["ridge"].distance.mean - 1) < 5 * (2 / 2000) ** 0.5


@pytest.mark.slow
def test_curves_over_examples_share_their_prompts():
    found = identify(
        reg.Ridge(0.5), named("averaging", "ridge"), num_examples=[0, 2, 4]
    )
    assert [a.num_examples for a in found.analyses] == [0, 2, 4]
    alone = identify(reg.Ridge(0.5), named("averaging", "ridge"), num_examples=4)
    assert alone.last["ridge"].distance.mean < 1e-20
    assert found.at(4).candidates[0].name == "ridge"
    assert len(found.rows()) == 6
    assert found.table().count("\n") == 6
    assert found.shares()["averaging"].mean.shape == (3,)
    axes = found.figure()
    assert {text.get_text() for text in axes.texts} == {"ridge", "averaging"}
    axes = alone.figure()
    names = [tick.get_text() for tick in axes.get_yticklabels()]
    assert names == ["averaging", "ridge (penalty 0.5)"]
    with pytest.raises(KeyError, match="expected one of"):
        found.at(3)


@pytest.mark.slow
def test_a_shift_and_prompts_already_drawn_are_sources():
    shift = reg.shifts.Shift("skewed", 5)
    found = identify(reg.Ridge(0.5), named("ridge"), shift, num_examples=6)
    assert found.best.distance.mean < 1e-20
    prompt = POPULATION.sample(KEY, 6, 100)
    found = identify(reg.Ridge(0.5), named("ridge"), prompt, num_examples=6, key=None)
    assert found.last.num_prompts == 50


@pytest.mark.slow
def test_prompts_may_be_float32_where_float64_is_allowed():
    source = reg.LinearPopulation.isotropic(2, 0.25, dtype=jnp.float32)
    rows = named("gradient descent", "ridge")
    found = identify(reg.Ridge(0.5), rows, source, num_examples=4)
    assert found.last.exact
    assert abs(found.best.parameters["penalty"] - 0.5) < 1e-3


NUMPY = ms.NumpyModel(lambda X, y, x: y.mean())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"candidates": [1]}, "candidates: expected families"),
        ({"candidates": {}}, "candidates: expected families"),
        (
            {"candidates": {"own": NUMPY}},
            "of JAX, which can be .* a NumpyModel as 'own'",
        ),
        ({"candidates": [ROWS["ridge"]] * 2}, "candidates: expected distinct names"),
        ({"num_examples": []}, "num_examples: expected at least one"),
        ({"num_examples": -1}, "num_examples: expected an integer >= 0"),
        ({"num_prompts": 4}, "num_prompts: expected an integer >= 8"),
        ({"level": 1.0}, "level: expected a number between 0 and 1"),
        ({"key": None}, "key: expected one key"),
        ({"source": 3}, "source: expected a source, a sampler or prompts"),
        ({"source": POPULATION.sample(KEY, 8, 3)}, "source: expected at least 8 .* 3"),
        ({"model": 3}, "predictor: expected a predictor or a function"),
    ],
)
def test_wrong_arguments_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        identify(**{"model": reg.Ridge(0.5), "candidates": named("ridge")} | change)


def test_a_family_has_the_name_it_is_given():
    rows = {"mine": ROWS["averaging"], "none": ROWS["zero"]}
    assert identify(reg.Averaging(), rows, num_prompts=16).best.name == "mine"


@pytest.mark.slow
def test_without_examples_all_predict_0():
    found = identify(reg.Ridge(0.5), None, num_examples=0, num_prompts=16)
    assert all(candidate.distance.mean == 0 for candidate in found.last.candidates)


def test_answers_that_ignore_the_labels_are_not_all_the_same():
    found = identify(lambda X, y, x: x[0], named("zero"), num_prompts=16)
    assert np.isnan(found.last.linearity_in_labels.mean)
    assert "the model is closest to zero" in str(found)
    found = identify(lambda X, y, x: 0.1, named("zero"), num_prompts=16)
    assert str(found) == "After 8 examples its answers are all the same."


def test_answers_that_are_not_finite_are_refused():
    with pytest.raises(ValueError, match="model: expected finite answers"):
        identify(lambda X, y, x: jnp.nan * x[0], named("zero"))


# --- coverage


ANALYSES, LARGE = 1000, 200_000
SETTINGS = {
    "d 3, N 6": (3, 6, reg.Averaging(), lambda x: 0.5 * jnp.cos(2 * x[0])),
    "d 2, N 10": (2, 10, reg.Ridge(20.0), lambda x: 0.3 * jnp.abs(x[1])),
}


def drawn(seed, dim, N, count):
    """Prompts with noise of variance 1/4, by NumPy, twenty times as fast."""
    rng = np.random.default_rng(seed)
    X, w = rng.normal(size=(count, N + 1, dim)), rng.normal(size=(count, dim))
    y = np.einsum("snd,sd->sn", X, w) + 0.5 * rng.normal(size=(count, N + 1))
    parts = X[:, :-1], y[:, :-1], X[:, -1], y[:, -1], w
    return reg.Prompt(*map(jnp.asarray, parts))


@pytest.mark.slow
@pytest.mark.usefixtures("as_for_a_user")  # checks of annotations take half the time
@pytest.mark.parametrize("setting", SETTINGS)
def test_intervals_cover(setting):
    """Distances, their differences and weights, over 1,000 analyses.

    The model is .6 ridge + .4 of another rule + an even function of the query, which is
    orthogonal to both. The true distance at each tuned penalty is that on 200,000
    prompts, whose error is 7 % of that of an interval.
    """
    dim, N, other, even = SETTINGS[setting]
    parts = reg.Ridge(1.0), other

    def model(X, y, x):
        first, second = (part.answer(X, y, x) for part in parts)
        return 0.6 * first + 0.4 * second + even(x)

    batch = jax.jit(jax.vmap(model))
    rows = [fixed("ridge 1", parts[0]), fixed("other", other), ROWS["ridge"]]
    large = drawn(7, dim, N, LARGE)
    X, y, x = map(np.asarray, (large.X, large.y, large.x_query))
    f = np.asarray(batch(X, y, x))
    errors = [np.mean((jax.vmap(part.answer)(X, y, x) - f) ** 2) for part in parts]
    gap = errors[1] - errors[0]
    # Ridge in the eigenvectors of X'X, at every penalty.
    values, V = np.linalg.eigh(np.einsum("snd,sne->sde", X, X))
    moment = np.einsum("snd,sn->sd", X, y)
    products = np.einsum("sdk,sd->sk", V, moment) * np.einsum("sdk,sd->sk", V, x)
    hits = {"distance": 0, "farther": 0, "weight": 0}
    for seed in range(ANALYSES):
        prompt = drawn(1000 + seed, dim, N, 2000)
        blank = np.zeros(2000)
        answers = batch(prompt.X, prompt.y, prompt.x_query)
        weights = np.zeros((2000, N)), np.zeros((2000, dim))
        response = ms.Responses(answers, blank, blank, *weights)
        tuned = analyse(response, prompt, rows[2:], 0.95)["ridge"]
        ridge = np.sum(products / (values + tuned.parameters["penalty"]), axis=1)
        low, high = tuned.distance.interval()
        hits["distance"] += low <= np.mean((ridge - f) ** 2) <= high
        found = analyse(response, prompt, rows[:2], 0.95)
        low, high = found["other"].weight_interval
        hits["weight"] += low <= 0.4 <= high
        low, high = found["other"].farther.interval()
        hits["farther"] += low <= gap <= high
    # 93 to 97 %, almost three standard errors of a share.
    shares = {name: n / ANALYSES for name, n in hits.items()}
    assert all(0.93 <= share <= 0.97 for share in shares.values()), shares
