"""Searches over compositions: against a loop over every composition, and by scores."""

import dataclasses
import itertools

import numpy as np
import pytest

from experiments.small_lm import FOLDER, declaration
from icltheory.bridge import (
    evaluate,
    load_checkpoint,
    load_task,
    prune_model,
    search_compositions,
)
from icltheory.bridge._beam import beam_search
from icltheory.bridge.answer_file import AnswerFile
from icltheory.bridge.spectra import SingularSystems
from icltheory.layered import get_matrix, replace_matrix
from icltheory.pruning import Intervention
from icltheory.statistics import compare
from tests.bridge.evaluation_tasks import classification, tiny, with_test
from tests.raising import raises

MODEL = "experiments/small_lm/checkpoint"
CANDIDATES = (
    *("1:W_V:0.75", "0:attn:0.9", "0:W_V:rank=16"),
    *("2:W_Q,W_K:rank=3", "head:rank=40"),
)
OVERLAP = {"0:attn:0.9", "0:W_V:rank=16"}


def searched(values, budget, beam, touched=None):
    """The search over made-up scores, by the letters of a set; the rest scores 0."""
    names = sorted(set("".join(values)))
    asked = []

    def score(pairs):
        sets = ["".join(sorted(names[i] for i in (*c, n))) for c, n in pairs]
        asked.extend(sets)
        return [float(values.get(one, 0)) for one in sets]

    touched = touched or [{name} for name in names]
    found = beam_search(float(values[""]), touched, score, budget, beam)
    return "".join(names[i] for i in found.best.chosen), found, asked


def test_a_beam_finds_what_greed_misses():
    values = {"": 3, "a": 5, "b": 4, "c": 2, "ab": 5, "ac": 5, "bc": 7, "abc": 6}
    best, found, asked = searched(values, 100, 1)
    assert (best, found.stopped, found.evaluations) == ("a", "no improvement", 6)
    assert asked == ["a", "b", "c", "ab", "ac"]
    best, found, asked = searched(values, 100, 2)
    assert (best, found.best.scores, found.evaluations) == ("bc", (3, 4, 7), 8)
    # abc is looked at once, though two sets of the beam lead to it.
    assert asked == ["a", "b", "c", "ab", "ac", "bc", "abc"]
    assert found.stopped == "no improvement"


def test_a_budget_leaves_out_the_last_candidates():
    values = {"": 3, "a": 5, "b": 6, "c": 9, "ab": 10}
    best, found, asked = searched(values, 3, 1)
    assert (best, found.evaluations, found.stopped) == ("b", 3, "budget")
    assert asked == ["a", "b"]
    best, found, asked = searched(values, 4, 1)
    assert (best, found.evaluations, found.stopped) == ("c", 4, "budget")


def test_only_what_is_strictly_better_is_taken_and_the_first_of_equals():
    best, found, _ = searched({"": 3, "a": 3, "b": 3}, 9, 2)
    assert (best, found.best.scores, found.stopped) == ("", (3,), "no improvement")
    assert searched({"": 3, "a": 4, "b": 4}, 9, 1)[0] == "a"


def test_candidates_that_overlap_are_never_together():
    values = {"": 0, "a": 1, "b": 1, "ab": 9, "ac": 2}
    touched = [{1}, {1, 2}, {3}]
    best, found, asked = searched(values, 100, 3, touched)
    assert best == "ac"
    assert "ab" not in asked
    best, found, _ = searched({"": 0, "a": 1, "b": 2}, 100, 1, [{1}, {1}])
    assert (best, found.stopped, found.evaluations) == ("b", "no candidates", 3)


@pytest.fixture(scope="module")
def subject():
    """The small model with noise on its weights, so that clipping may help."""
    model, rng = load_checkpoint(MODEL), np.random.default_rng(0)
    params = model.params
    for layer in range(model.num_layers):
        for spec in model.matrices(layer):
            W = np.asarray(get_matrix(params, spec))
            noise = rng.normal(size=W.shape).astype(W.dtype)
            params = replace_matrix(params, spec, W + 1.3 * W.std() * noise)
    model = model.replace(params=params)
    task = load_task(declaration("sentiment"), FOLDER / "sentiment")
    few = {"validation": task.validation[:48], "test": task.test[:48]}
    return model, dataclasses.replace(task, **few)


@pytest.mark.slow
def test_the_search_is_the_loop_over_every_composition(subject, tmp_path):
    model, task = subject
    options = {"shots": 0, "batch_size": 48}

    def right(names, split):
        return evaluate(prune_model(model, names), task, split, **options).correct

    accuracy = {
        frozenset(names): right(names, "validation").mean()
        for size in range(len(CANDIDATES) + 1)
        for names in itertools.combinations(CANDIDATES, size)
        if not set(names) >= OVERLAP
    }

    def loop(beam):
        best, level = (), [()]
        while True:
            wider = {}
            for names, more in itertools.product(level, CANDIDATES):
                new = (*names, more)
                if more not in names and not set(new) >= OVERLAP:
                    wider.setdefault(frozenset(new), new)
            level = sorted(wider.values(), key=lambda names: -of(names))[:beam]
            if not level or of(level[0]) <= of(best):
                return best
            best = level[0]

    def of(names):
        return accuracy[frozenset(names)]

    paths = []
    for beam in (1, 2):
        file = tmp_path / f"{beam}.sqlite"
        found = search_compositions(
            model, task, CANDIDATES, budget=40, beam=beam, answers=file, **options
        )
        names = tuple(map(str, found.interventions))
        assert names == loop(beam)
        scores = [accuracy[frozenset(names[: i + 1])] for i in range(len(names))]
        assert [step.validation_score for step in found.path] == pytest.approx(scores)
        assert found.unpruned_score == pytest.approx(accuracy[frozenset()])
        expected = compare(right((), "test"), right(names, "test"))
        assert found.comparison == expected
        assert str(found).endswith(str(expected))
        asked = list(AnswerFile(file))
        judged = {
            (line["composition"], line["layer"], line["module"], line["rate"])
            for line in asked
            if line["split"] == "validation"
        }
        assert len(judged) == found.evaluations <= len(accuracy)
        paths.append(names)
    assert len(paths[0]) > 1

    def never(done, total, part):
        assert total == 0, part

    again = search_compositions(
        model,
        task,
        [Intervention.parse(text) for text in CANDIDATES],
        budget=40,
        beam=2,
        answers=file,
        progress=never,
        **options,
    )
    assert (again.path, again.comparison) == (found.path, found.comparison)


class Shrunk(SingularSystems):
    """A store whose singular values are three quarters of the true ones."""

    def of(self, W):
        system = super().of(W)
        return system._replace(s=0.75 * system.s)


@pytest.mark.slow
def test_all_interventions_of_a_composition_are_clipped_by_the_store(subject, tmp_path):
    model, task = subject
    options, store = {"shots": 0, "batch_size": 48}, Shrunk(tmp_path)
    found = search_compositions(
        model, task, CANDIDATES, budget=20, cache=store, **options
    )
    assert len(found.path) > 1
    clipped = prune_model(model, found.interventions, systems=store)
    right = evaluate(clipped, task, "validation", **options).correct
    assert found.validation_score == pytest.approx(right.mean())
    before, after = (evaluate(m, task, "test", **options) for m in (model, clipped))
    assert found.comparison == compare(before.correct, after.correct)


def test_what_cannot_be_searched_is_refused():
    model = tiny("groups", num_layers=2)
    task = with_test(classification(3), classification(3, seed=5).validation)

    def search(candidates=("0:mlp:0.5",), model=model, task=task, **more):
        search_compositions(model, task, candidates, **{"budget": 3, **more})

    with raises("candidates: expected at least one, got none"):
        search(())
    with raises("candidates: expected no duplicates, got 0:mlp:0.5 twice"):
        search(("0:mlp:0.5", "0:mlp:rate=0.5"))
    with raises("candidates: expected a sequence, got '0:mlp:0.5'"):
        search("0:mlp:0.5")
    with raises("layer: expected 0 to 1, got 2"):
        search(("2:mlp:0.5",))
    with raises("intervention: expected LAYER:MATRICES:STRENGTH"):
        search(("mlp",))
    with raises("budget: expected at least 2 evaluations, got 1"):
        search(budget=1)
    with raises("beam: expected a positive integer, got 0"):
        search(beam=0)
    with raises("level: expected a number between 0 and 1, got 95.0"):
        search(level=95.0)
    with raises("batch_size: expected a positive integer, got 0"):
        search(batch_size=0)
    with raises("task: expected test examples of toy, got none"):
        search(task=classification(3))
    one = dataclasses.replace(task, test=task.test[:1], denominator="n-1")
    with raises("labels: expected at least 2 examples for the denominator n-1, got 1"):
        search(task=one)
    with raises("task: expected validation examples of toy that are not in the test"):
        search(task=classification(3, test=task.validation))
    bad = model.params["layers"][0]["mlp"]["W_in"]["weight"].at[0, 0].set(np.nan)
    layer = dict(model.params["layers"][0])
    layer["mlp"] = {**layer["mlp"], "W_in": {"weight": bad}}
    params = {**model.params, "layers": (layer, *model.params["layers"][1:])}
    with raises("model: expected finite weights, got 1 NaN"):
        search(model=model.replace(params=params))
