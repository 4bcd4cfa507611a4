"""Layers, snapshots and shifts: the algorithm at every place of an axis."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from icltheory import constructions
from icltheory import microscope as ms
from icltheory import regression as reg
from icltheory.layered import LayeredStack

SIZES = np.array([0.3, 0.2, 0.4])
STACK = constructions.gradient_descent(SIZES, 3)
MODEL = LayeredStack.of(STACK, scale=1 / 6)
POPULATION = reg.LinearPopulation.isotropic(3, 0.25)
OPTIONS = {"num_examples": 6, "key": jax.random.key(0), "num_prompts": 100}
STEPS = {f"{t} steps": reg.Steps(SIZES[:t]) for t in range(4)}


def tokens(X, y, x):
    return tuple(constructions.join_tokens(X, y[:, None], x))


def read(h):
    return constructions.read_prediction(h, 3)[0]


@pytest.mark.slow
def test_every_layer_of_a_stack_is_one_more_step():
    found = ms.along_layers(
        MODEL, STACK, POPULATION, tokens, read, candidates=STEPS, **OPTIONS
    )
    assert [found[layer].best.name for layer in range(4)] == list(STEPS)
    assert all(found[layer].best.distance.mean < 1e-25 for layer in range(4))
    assert len(found.rows()) == 16
    assert {row["layer"] for row in found.rows()} == {0, 1, 2, 3}
    assert found.summary.splitlines()[2].startswith("layer 2: 2 steps")
    assert found.shares()["3 steps"].mean.shape == (4,)
    with pytest.raises(KeyError, match="layer: expected one of"):
        found[4]


@pytest.mark.slow
def test_probes_read_what_the_label_slot_has():
    """The label slot has minus the answer: a probe finds it and cannot be worse."""
    fit = POPULATION.sample(jax.random.key(1), 6, 4000)
    probes = ms.probe(MODEL, STACK, fit, tokens, lambda hidden: hidden.h_query)
    fresh = POPULATION.sample(jax.random.key(2), 6, 4000)
    for depth, model in probes.items():
        answers = ms.responses(model, fresh).answers
        own = reg.squared_errors(STEPS[f"{depth} steps"], fresh)
        gain = np.asarray(own) - np.asarray((answers - fresh.y_query) ** 2)
        assert gain.mean() > -3 * gain.std() / np.sqrt(4000), depth
    found = ms.along_models(
        probes, POPULATION, axis="layer", candidates=STEPS, **OPTIONS
    )
    # Before the first layer the state is the query alone.
    assert found[0].best.name == "0 steps"
    assert found[0].last.linearity_in_query.mean > 0.999
    # A probe scales the answer, so that it is near the steps but not equal to them.
    assert found[3].best.name == "3 steps"
    assert 1e-6 < found[3].best.share.mean < 0.1


def test_a_probe_is_least_squares():
    rng = np.random.default_rng(0)
    H = rng.normal(size=(50, 3))
    y = H @ np.array([1.0, -2.0, 0.5]) + 3.0
    fitted = ms.Probe.fitted(H, y, penalty=0.0)
    np.testing.assert_allclose(fitted.weights, [1.0, -2.0, 0.5], rtol=1e-9)
    np.testing.assert_allclose(fitted(jnp.ones(3)), 2.5, rtol=1e-9)


@pytest.mark.slow
def test_snapshots_and_shifts_are_axes():
    def function(penalty, X, y, x):
        return reg.Ridge(penalty).answer(X, y, x)

    models = {step: ms.WithParams(function, jnp.asarray(2.0**-step)) for step in (0, 1)}
    rows = {f"ridge {r:g}": reg.Ridge(r) for r in (1.0, 0.5)}
    found = ms.along_models(models, POPULATION, candidates=rows, **OPTIONS)
    assert [found[step].best.name for step in (0, 1)] == list(rows)
    settings = {name: reg.shifts.Shift(name, 3) for name in ("standard", "skewed")}
    found = ms.along_shifts(reg.Ridge(0.5), settings, candidates=rows, **OPTIONS)
    assert all(found[name].best.name == "ridge 0.5" for name in settings)
    axes = found.figure(["ridge 1"])
    assert [t.get_text() for t in axes.get_xticklabels()] == list(settings)


def test_shares_are_those_of_candidates_of_all_places():
    rows = {"own": reg.Zero(), "other": reg.Averaging()}
    sizes = {"num_examples": 2, "key": jax.random.key(0), "num_prompts": 8}
    found = tuple(
        ms.identify(
            reg.Averaging(), POPULATION, {name: rows[name] for name in names}, **sizes
        )
        for names in (["own"], ["other", "own"])
    )
    along = ms.Along("source", ("shift", "population"), found)
    assert list(along.shares()) == ["own"]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: ms.along_models({}, POPULATION),
            "named: expected models by place, at least one",
        ),
        (
            lambda: ms.along_shifts(reg.Zero(), {}),
            "sources: expected sources by name, at least one",
        ),
    ],
)
def test_wrong_arguments_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
