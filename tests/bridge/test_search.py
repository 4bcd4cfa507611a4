"""Algorithm 1 and compositions: against plain evaluation, and by made-up answers."""

import dataclasses
import itertools

import numpy as np
import pytest

from experiments.small_lm import FOLDER, declaration
from icltheory.bridge import (
    Evaluator,
    algorithm1,
    choose_layer,
    condition_numbers,
    evaluate,
    evaluate_naive,
    load_checkpoint,
    load_task,
    prune_model,
    search_compositions,
)
from icltheory.bridge.answers import Answer
from icltheory.bridge.evaluation._split import SplitEvaluator
from icltheory.bridge.spectra import SingularSystems
from icltheory.layered import get_matrix, replace_matrix
from icltheory.pruning import Intervention, Rank, choose_layers, choose_rate
from icltheory.statistics import (
    compare,
    exact_mcnemar,
    paired_interval,
    proportion_interval,
)
from tests.bridge.evaluation_tasks import classification, tiny, with_test
from tests.bridge.test_evaluation import with_nan
from tests.raising import raises

RATES = (0, 0.25, 0.5, 0.75)


@pytest.fixture(scope="module")
def model():
    return tiny("groups", num_layers=2)


@pytest.fixture(scope="module")
def task():
    return with_test(classification(9), classification(9, seed=5).validation)


def plain(model, task, layer, module, rate, split):
    pruned = prune_model(model, Intervention(layer, module, rate))
    found = evaluate_naive(pruned, task, split)
    return found.accuracy, found.correct


@pytest.mark.slow
@pytest.mark.parametrize("module", ["mlp", "W_V"])
def test_it_chooses_and_judges_as_plain_evaluation_does(model, task, module):
    rows = condition_numbers(model, module=module)
    layers = choose_layer(rows, module, 1, "mean")
    found = algorithm1(Evaluator(model, task), layers, module, RATES)
    values = [[r.condition_number for r in rows if r.layer == l] for l in range(2)]
    layer = choose_layers(values, 1, aggregate="mean").deepest
    scores = [plain(model, task, layer, module, r, "validation")[0] for r in RATES]
    rate = choose_rate(scores, RATES, scores[0]).rate
    assert (layers.deepest, found.layers, found.rate) == (layer, layers, rate)
    assert list(found.tried.values()) == pytest.approx(scores)
    assert found.unpruned_score == pytest.approx(scores[0])
    before, right = plain(model, task, layer, module, 0, "test")
    after, pruned = plain(model, task, layer, module, rate, "test")
    assert (found.test_before, found.test_after) == pytest.approx((before, after))
    gained, lost = int((pruned & ~right).sum()), int((right & ~pruned).sum())
    assert found.comparison.p_value == exact_mcnemar(gained, lost)
    assert found.comparison.discordant == (gained, lost)
    assert found.majority.share == pytest.approx(3 / 9)


def test_without_a_gain_nothing_is_pruned_and_nothing_differs(model, task):
    found = algorithm1(Evaluator(model, task), 1, "mlp", [0])
    assert (found.rate, found.path, found.selection) == (0, (), None)
    assert found.test_after == found.test_before
    assert found.comparison.p_value == 1
    assert found.comparison.could_be_chance
    assert found.validation_score == found.unpruned_score


@pytest.mark.slow
def test_the_test_set_takes_no_part_in_the_choice(model, task):
    turned = tuple(e._replace(label=(e.label + 1) % 3) for e in task.test)
    other = dataclasses.replace(task, test=turned)
    one, two = (algorithm1(Evaluator(model, t), 1, "mlp", RATES) for t in (task, other))
    assert (one.path, one.tried) == (two.path, two.tried)


# --- made-up answers


def made(model, right, tested=None, strengths=None, scores=None, **changes):
    """A task with answers: each strength (rows) is right where ``right`` says."""
    right = np.asarray(right, bool)
    size = right.shape[1]
    task = with_test(classification(size), classification(size, seed=5).validation)
    task = dataclasses.replace(task, **changes)
    found = Evaluator(model, task)
    if strengths is None:
        strengths = (np.arange(len(right)) / 10).tolist()
    for split, values in (("validation", right), ("test", tested)):
        values = right if values is None else np.asarray(values, bool)
        labels = np.array([one.label for one in task.examples(split)])
        options = np.where(values, labels, (labels + 1) % 3)
        rows = np.eye(3)[options] if scores is None else np.asarray(scores)
        for strength, some in zip(strengths, rows, strict=True):
            name = "" if strength == 0 else str(Intervention(0, "mlp", strength))
            answers = enumerate(zip(labels.tolist(), some, strict=True))
            answers = [
                Answer(split, name, n, label, row) for n, (label, row) in answers
            ]
            found.answers.add(found.key, answers)
    return found, strengths[1:]


def test_a_clear_winner_is_chosen_and_better_on_the_test(model):
    rng = np.random.default_rng(0)
    right = rng.random((8, 400)) < np.array([0.6, *[0.5] * 6, 0.9])[:, None]
    evaluator, rates = made(model, right)
    found = algorithm1(evaluator, 0, "mlp", rates)
    assert found.rate == 0.7
    assert len(found.tried) == 8
    assert found.comparison.verdict == "better"
    assert str(found).startswith("0:mlp:0.7: ")


def test_the_interval_is_the_score_interval_at_the_level_and_fits_its_p_value(model):
    """Three gains of 512: a bootstrap excluded 0 beside an exact p-value of 0.25."""
    before = np.arange(512) < 400
    validation = np.stack([before, np.ones(512, bool)])
    evaluator, rates = made(model, validation, [before, np.arange(512) < 403])
    for level, excludes in ((0.95, False), (0.9, True)):
        found = algorithm1(evaluator, 0, "mlp", rates, level=level)
        assert found.rate == 0.1
        pair = found.comparison
        assert (pair.discordant, pair.level) == ((3, 0), level)
        assert tuple(pair.interval) == paired_interval(3, 0, 512, level=level)
        assert (pair.interval.low > 0) == (pair.score_p_value <= 1 - level) == excludes
        assert found.after_interval == proportion_interval(403, 512, level=level)
        assert (pair.p_value, pair.verdict) == (0.25, "cannot tell")


def test_a_tie_goes_to_the_larger_rank_in_whatever_order_they_are_given(model):
    right, ranks = np.zeros((4, 40)), [*map(Rank, (12, 8, 4))]
    right[0, :10] = right[1, :30] = right[2, :30] = right[3, :5] = 1
    evaluator, _ = made(model, right, strengths=(0.0, *ranks))
    for order in (ranks, ranks[::-1]):
        found = algorithm1(evaluator, 0, "mlp", order)
        assert found.rate == Rank(12)
        assert str(found).startswith("0:mlp:rank=12: ")
        assert found.validation_score == found.selection.score == 0.75
    none, _ = made(model, np.ones((4, 8)), strengths=(0.0, *ranks))
    found = algorithm1(none, 0, "mlp", ranks)
    assert (found.rate, found.comparison.p_value) == (0, 1)
    assert str(found).startswith("unpruned: ")


def test_the_authors_profile_divides_by_one_less_and_counts_ties_as_wrong(model):
    # Labels 0, 1, 2, 0 on validation: the last answer is a tie that the first wins.
    scores = [[[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 0]]] * 2
    authors = {"profile": "authors_code", "denominator": "n-1"}
    strict, rates = made(model, np.ones((2, 4)), scores=scores, **authors)
    paper, _ = made(model, np.ones((2, 4)), scores=scores)
    assert strict.correct("validation").tolist() == [[True, True, True, False]]
    assert paper.correct("validation").all()
    found = algorithm1(strict, 0, "mlp", rates)
    assert found.unpruned_score == found.test_before == 1.0  # 3 of 4, by n - 1
    assert found.comparison.before == 0.75


def test_nan_is_wrong_and_an_unpruned_model_without_answers_is_refused(model):
    scores = np.array([[[1.0, 0, 0], [0, np.nan, 0]]])
    evaluator, _ = made(model, np.ones((1, 2)), scores=scores)
    assert evaluator.correct("validation").tolist() == [[True, False]]
    scores[0, 0] = np.nan
    evaluator, _ = made(model, np.ones((1, 2)), scores=scores)
    with raises("scores: expected numbers of the unpruned model, got NaN for all 2"):
        evaluator.correct("validation")


# --- the choice of a layer, and what cannot be done


def test_the_layer_is_the_deepest_of_the_largest(model):
    rows = condition_numbers(model)
    found = choose_layer(rows, "attn", 1, "max")
    own = [row for row in rows if row.module == "attn"]
    largest = [max(r.condition_number for r in own if r.layer == l) for l in (0, 1)]
    np.testing.assert_allclose(found.scores, largest)
    assert found.deepest == int(np.argmax(largest))
    assert choose_layer(rows, "all", 2, "min").deepest == 1
    for arguments, message in (
        (("W_Z", 1, "max"), "conditions: expected condition numbers of W_Z"),
        (("all", 3, "max"), "k: expected at most 2 layers, got 3"),
        (("all", 1, "sum"), "aggregate: expected one of"),
    ):
        with raises(message):
            choose_layer(rows, *arguments)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rates": [1]}, "rates: expected numbers in [0, 1), got 1"),
        ({"rates": []}, "rates: expected at least one, got none"),
        (
            {"rates": [0.5, 0.5]},
            "candidates: expected no duplicates, got 1:mlp:0.5 twice",
        ),
        ({"rates": [Rank(17)]}, "rank: expected 1 <= rank <= 16, got 17"),
        ({"rates": [0.99]}, "rate: expected a rate that leaves a rank >= 1 of 16"),
        ({"seed": -1}, "seed: expected an integer >= 0, got -1"),
        ({"level": 95.0}, "level: expected a number between 0 and 1, got 95.0"),
        ({"module": "W_Z"}, "module: expected one of"),
        ({"layer": 2}, "layer: expected 0 to 1, got 2"),
        ({"shots": 5}, "shots: expected at most 4 for toy, got 5"),
    ],
)
def test_what_cannot_be_done(model, task, changes, message, monkeypatch):
    """It is said before anything runs."""
    monkeypatch.setattr(SplitEvaluator, "stream", None)
    arguments = {"layer": 1, "module": "mlp", "rates": RATES, **changes}
    with raises(message):
        evaluator = Evaluator(model, task, arguments.pop("shots", None))
        algorithm1(evaluator, **arguments)


def test_tasks_and_weights_that_would_give_wrong_numbers_are_refused(model, task):
    """The lint runs inside, and before anything is evaluated."""

    def search(task, model=model):
        algorithm1(Evaluator(model, task), 0, "mlp", RATES)

    for split in ("validation", "test"):
        none = dataclasses.replace(task, **{split: ()})
        with raises(f"task: expected {split} examples of toy, got none"):
            search(none)
        few = dataclasses.replace(none, **{split: task.test[:1]}, denominator="n-1")
        with raises("labels: expected at least 2 examples for the denominator n-1"):
            search(few)
    with raises("task: expected validation examples of toy that are not in the test"):
        search(dataclasses.replace(task, validation=task.test))
    with raises("task: expected demonstrations examples of toy that are not in the"):
        search(task.with_demonstrations(task.test[:2]))
    some = dataclasses.replace(task, validation=(task.test[4], *task.validation))
    with (
        pytest.warns(UserWarning, match="^toy validation example 4: the same text is"),
        raises("layer: expected 0 to 1, got 2"),
    ):
        algorithm1(Evaluator(model, some), 2, "mlp", RATES)
    place = "['layers'][1]['mlp']['W_in']['weight']"
    why = "model: expected finite weights, got 1 NaN or infinite ones in params"
    with raises(f"{why}{place}"):
        search(task, with_nan(model, 1, "mlp", "W_in"))


# --- several modules

SMALL = "experiments/small_lm/checkpoint"
CANDIDATES = (
    *("1:W_V:0.75", "0:attn:0.9", "0:W_V:rank=16"),
    *("2:W_Q,W_K:rank=3", "head:rank=40"),
)
OVERLAP = {"0:attn:0.9", "0:W_V:rank=16"}


@pytest.fixture(scope="module")
def subject():
    """The small model with noise on its weights, so that pruning may help."""
    model, rng = load_checkpoint(SMALL), np.random.default_rng(0)
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
def test_the_search_is_the_loop_over_every_composition(subject, tmp_path, monkeypatch):
    model, task = subject

    def right(names, split):
        pruned = prune_model(model, names)
        return evaluate(pruned, task, split, 0, batch_size=48).correct

    accuracy = {
        frozenset(names): right(names, "validation").mean()
        for size in range(len(CANDIDATES) + 1)
        for names in itertools.combinations(CANDIDATES, size)
        if not set(names) >= OVERLAP
    }

    def of(names):
        return accuracy[frozenset(names)]

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

    def search(beam, file):
        evaluator = Evaluator(model, task, 0, answers=file, batch_size=48)
        return search_compositions(evaluator, CANDIDATES, budget=40, beam=beam)

    for beam in (1, 2):
        file = tmp_path / f"{beam}.sqlite"
        found = search(beam, file)
        names = tuple(map(str, found.path))
        assert names == loop(beam)
        assert len(names) > 1
        scores = [of(names[:i]) for i in range(len(names) + 1)]
        assert found.path_scores == pytest.approx(scores)
        expected = compare(right((), "test"), right(names, "test"))
        assert found.comparison == expected
        assert str(expected) in str(found)
        assert len(found.tried) <= len(accuracy)
    monkeypatch.setattr(SplitEvaluator, "stream", None)
    again = search(2, file)
    assert (again.path, again.comparison) == (found.path, found.comparison)


class Shrunk(SingularSystems):
    """A store whose singular values are three quarters of the true ones."""

    def of(self, W):
        system = super().of(W)
        return system._replace(s=0.75 * system.s)


@pytest.mark.slow
def test_all_interventions_of_a_composition_are_pruned_by_the_store(subject, tmp_path):
    (model, task), store = subject, Shrunk(tmp_path)
    evaluator = Evaluator(model, task, 0, systems=store, batch_size=48)
    found = search_compositions(evaluator, CANDIDATES, budget=20)
    assert len(found.path) > 1
    clipped = prune_model(model, found.path, systems=store)
    right = evaluate(clipped, task, "validation", 0, batch_size=48).correct
    assert found.validation_score == pytest.approx(right.mean())
    both = [evaluate(m, task, "test", 0, batch_size=48) for m in (model, clipped)]
    assert found.comparison == compare(*(one.correct for one in both))
    with raises("level: expected a number between 0 and 1, got 95.0"):
        search_compositions(evaluator, CANDIDATES, budget=20, level=95.0)
    with raises("intervention: expected LAYER:MATRICES:STRENGTH"):
        search_compositions(evaluator, ("mlp",), budget=20)
