"""Algorithm 1 against plain evaluation, its answers, and every complaint."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from icltheory.bridge import cached_evaluator, prune_model
from icltheory.bridge.answer_cache import AnswerCache, TaskFacts, facts_of
from icltheory.bridge.answer_file import AnswerFile
from icltheory.bridge.cached_evaluator import CachedEvaluator
from icltheory.bridge.evaluation import GridChunk, evaluate_naive
from icltheory.bridge.layer_search import algorithm1, layer_choice, read_algorithm1
from icltheory.bridge.spectra import condition_numbers
from icltheory.pruning import Intervention, choose_layers, choose_rate, module_matrices
from icltheory.statistics import exact_mcnemar, paired_interval, proportion_interval
from tests.bridge.evaluation_tasks import choice, classification, tiny, with_test
from tests.bridge.tiers import quick

RATES = (0, 0.25, 0.5, 0.75)


@pytest.fixture(scope="module")
def model():
    return tiny("groups", num_layers=2)


@pytest.fixture(scope="module")
def task():
    return with_test(classification(9), classification(9, seed=5).validation)


def in_half(model):
    halves = jax.tree.map(lambda leaf: np.asarray(leaf, jnp.bfloat16), model.params)
    halves = jax.tree.map(jnp.asarray, halves)
    return model.replace(params=halves)


def plain(model, task, layer, module, rate, split):
    found = evaluate_naive(
        prune_model(model, Intervention(layer, module, rate)), task, split
    )
    return found.accuracy, found.correct


@pytest.mark.slow
@pytest.mark.parametrize("module", quick(["W_V"], ["mlp", "W_V"]))
def test_it_chooses_and_judges_as_plain_evaluation_does(model, task, module):
    found = algorithm1(model, task, module, RATES, 1, "mean")
    rows = [
        [
            r.condition_number
            for r in condition_numbers(model, layers=[l], module=module)
        ]
        for l in range(2)
    ]
    layer = choose_layers(rows, 1, aggregate="mean").deepest
    scores = [plain(model, task, layer, module, r, "validation")[0] for r in RATES]
    rate = choose_rate(scores, RATES, scores[0]).rate
    assert (found.layer, found.rate) == (layer, rate)
    assert found.validation_scores == pytest.approx(scores)
    assert found.unpruned_score == pytest.approx(scores[0])
    before, right = plain(model, task, layer, module, 0, "test")
    after, pruned = plain(model, task, layer, module, rate, "test")
    assert (found.test_before, found.test_after) == pytest.approx((before, after))
    gained, lost = int((pruned & ~right).sum()), int((right & ~pruned).sum())
    assert found.p_value == exact_mcnemar(gained, lost)
    assert found.comparison.discordant == (gained, lost)
    assert found.majority.share == pytest.approx(3 / 9)
    assert found.evaluations == 4 * 9


@pytest.mark.slow
def test_a_task_of_choices_and_few_shots(model):
    task = dataclasses.replace(choice(5), test=choice(4, seed=9).validation)
    found = algorithm1(model, task, "attn", [0.5], 2, "max", shots=1)
    assert found.layer == 1
    clipped = evaluate_naive(prune_model(model, "1:attn:0.5"), task, shots=1)
    assert found.validation_scores == pytest.approx((clipped.accuracy,))
    assert len(found.rates) == 1
    assert found.evaluations == 2 * 5


@pytest.mark.slow
def test_without_a_gain_nothing_is_pruned_and_nothing_differs(model, task):
    found = algorithm1(model, task, "mlp", [0], 1, "max")
    assert found.rate == 0
    assert found.test_after == found.test_before
    assert found.p_value == 1
    assert found.could_be_chance
    assert found.selection is None
    assert found.validation_score == found.unpruned_score


@pytest.mark.slow
def test_the_test_set_takes_no_part_in_the_choice(model, task):
    turned = tuple(e._replace(label=(e.label + 1) % 3) for e in task.test)
    other = dataclasses.replace(task, test=turned)
    one, two = (algorithm1(model, t, "mlp", RATES, 1, "max") for t in (task, other))
    assert (one.layer, one.rate) == (two.layer, two.rate)
    assert one.validation_scores == two.validation_scores


def test_what_is_recorded_is_not_asked_again(model, task, tmp_path, monkeypatch):
    path, calls = tmp_path / "answers.sqlite", []

    def record(*call):
        calls.append(call)

    first = algorithm1(
        model, task, "mlp", RATES, 1, "max", answers=path, progress=record
    )
    content = list(AnswerFile(path))
    tested = 9 * (1 if first.rate == 0 else 2)
    assert len(content) == 4 * 9 + tested
    assert calls[:2] == [(0, 6, ""), (1, 6, "layer 0, W_in")]
    stages = [(total, part) for done, total, part in calls if done == total]
    rates = "rate 0" if first.rate == 0 else f"rates 0, {first.rate:g}"
    searched = (36, "validation, rates 0, 0.25, 0.5, 0.75")
    assert stages == [(6, "layer 1, W_out"), searched, (tested, f"test, {rates}")]
    calls.clear()
    assert {"task", "shots", "split", "layer", "module", "rate"} < set(content[0])

    def never(*_, **__):
        raise AssertionError("a model was asked")

    monkeypatch.setattr(cached_evaluator, "Grid", never)
    again = algorithm1(
        model, task, "mlp", RATES, 1, "max", answers=path, progress=record
    )
    assert len(calls) == 7  # the condition numbers; no answer was missing
    assert list(AnswerFile(path)) == content
    assert str(again) == str(first)
    assert again.validation_scores == first.validation_scores
    with pytest.raises(AssertionError, match="a model was asked"):
        algorithm1(model, task, "mlp", [0.9], 1, "max", answers=path)
    other = dataclasses.replace(task, test=task.test[1:])
    with pytest.raises(AssertionError, match="a model was asked"):
        algorithm1(model, other, "mlp", RATES, 1, "max", answers=path)
    for other in (prune_model(model, "0:mlp:0.5"), in_half(model)):
        with pytest.raises(ValueError, match="config.weights is"):
            algorithm1(other, task, "mlp", RATES, 1, "max", answers=path)


@pytest.mark.slow
def test_only_what_is_missing_is_asked(model, task):
    answers = AnswerCache(facts_of(task))
    evaluate = CachedEvaluator(answers, model, task).evaluate_missing
    whole = AnswerCache(facts_of(task))
    every = ("validation", [0, 1], ["mlp", "attn"], RATES)
    CachedEvaluator(whole, model, task).evaluate_missing(*every)
    assert whole.added == 2 * 2 * 4 * 9
    evaluate("validation", [1], ["mlp"], RATES, examples=[2, 5], places=[0, 3])
    assert answers.added == 4
    evaluate("validation", [1], ["mlp"], RATES, examples=[2, 3])
    assert answers.added == 4 + 2 + 4
    evaluate(*every)
    assert answers.added == whole.added
    for layer in (0, 1):
        for module in ("mlp", "attn"):
            at = ("validation", layer, module, RATES)
            np.testing.assert_array_equal(answers.correct(*at), whole.correct(*at))
            np.testing.assert_allclose(
                answers.scores(*at), whole.scores(*at), atol=1e-5
            )


def answers_of(right, facts=None, scores=None, tested=None):
    """Answers: each rate (rows) is right on the examples that ``right`` says."""
    right = np.asarray(right, bool)
    facts = facts or TaskFacts(
        "made",
        "paper",
        "label_token",
        "n",
        ("a", "b"),
        {"validation": right.shape[1], "test": right.shape[1]},
        "",
    )
    answers = AnswerCache(facts)
    labels = np.arange(right.shape[1]) % 2
    rates = np.arange(len(right)) / 10
    for split, values in (("validation", right), ("test", tested)):
        values = right if values is None else np.asarray(values, bool)
        best = np.where(values, labels, 1 - labels)
        made = np.eye(2)[best] if scores is None else scores
        chunk = GridChunk(0, "mlp", np.arange(right.shape[1]), made)
        answers.add(split, rates.tolist(), [chunk], labels)
    return answers, rates.tolist()


def test_a_clear_winner_is_chosen_and_better_on_the_test():
    rng = np.random.default_rng(0)
    right = rng.random((8, 400)) < np.array([0.6, *[0.5] * 6, 0.9])[:, None]
    answers, rates = answers_of(right)
    found = read_algorithm1(answers, 0, "mlp", rates)
    assert found.rate == 0.7
    assert found.evaluations == 3200
    assert found.comparison.verdict == "better"


def test_a_search_among_equals_is_told_from_a_gain():
    rng = np.random.default_rng(1)
    validation, test = rng.random((2, 8, 200)) < 0.5
    answers, rates = answers_of(validation, tested=test)
    found = read_algorithm1(answers, 0, "mlp", rates)
    assert found.rate > 0
    assert found.could_be_chance
    assert found.selection.optimism > 0
    assert found.selection.score == found.validation_score


def test_the_interval_is_the_score_interval_at_the_level_and_fits_its_p_value():
    """Three gains of 512: a bootstrap excluded 0 beside an exact p-value of 0.25."""
    before = np.arange(512) < 400
    validation = np.stack([before, np.ones(512, bool)])
    answers, rates = answers_of(validation, tested=[before, np.arange(512) < 403])
    for level, excludes in ((0.95, False), (0.9, True)):
        found = read_algorithm1(answers, 0, "mlp", rates, level=level)
        assert found.rate == 0.1
        pair = found.comparison
        assert (pair.discordant, pair.level, pair.method) == ((3, 0), level, "score")
        assert tuple(pair.interval) == paired_interval(3, 0, 512, level=level)
        assert (pair.interval.low > 0) == (pair.score_p_value <= 1 - level) == excludes
        assert found.after_interval == proportion_interval(403, 512, level=level)
        assert (found.p_value, pair.verdict) == (0.25, "cannot tell")


def test_the_authors_profile_divides_by_one_less_and_counts_ties_as_wrong():
    facts = TaskFacts(
        "rte",
        "authors_code",
        "label_token",
        "n-1",
        ("Yes", "No"),
        {"validation": 4, "test": 4},
        "",
    )
    scores = np.array([[[1.0, 0], [0, 1], [1, 0], [0, 0]]] * 2)
    right = np.ones((2, 4))
    answers, rates = answers_of(right, facts, scores)
    found = read_algorithm1(answers, 0, "mlp", rates)
    assert found.unpruned_score == found.test_before == 1.0  # 3 of 4, by n - 1
    assert found.comparison.before == 0.75
    # Label 1 ties on the last example; in the paper's profile the first option wins.
    paper, _ = answers_of(right, facts._replace(profile="paper"), scores)
    assert paper.correct("test", 0, "mlp", [0]).tolist() == [[True, True, True, False]]
    scores[:, 2] = 0
    strict, _ = answers_of(right, facts, scores)
    first, _ = answers_of(right, facts._replace(profile="paper"), scores)
    assert strict.correct("test", 0, "mlp", [0]).sum() == 2
    assert first.correct("test", 0, "mlp", [0]).sum() == 3


def test_an_accuracy_of_one_example_by_n_minus_1_is_refused():
    facts = answers_of([[True, True]])[0].facts._replace(denominator="n-1")
    with pytest.raises(ValueError, match=r"^labels: expected at least 2 examples for"):
        AnswerCache(facts).accuracy(np.array([True]))


def test_nan_is_wrong_and_known():
    scores = np.array([[[1.0, 0], [0, np.nan]]])
    answers, _ = answers_of([[True, True]], scores=scores)
    assert answers.known("test", 0, "mlp", [0]).all()
    assert answers.correct("test", 0, "mlp", [0]).tolist() == [[True, False]]
    scores[0, 0] = np.nan
    answers, _ = answers_of([[True, True]], scores=scores)
    with pytest.raises(
        ValueError, match="scores: .* NaN for all 2 examples of made test"
    ):
        answers.correct("test", 0, "mlp", [0])


def test_scores_come_back_from_a_file_to_the_last_bit(tmp_path):
    facts = TaskFacts(
        "t", "paper", "label_token", "n", ("a", "b"), {"validation": 3, "test": 2}, ""
    )
    path = tmp_path / "r.sqlite"
    scores = np.random.default_rng(0).normal(size=(2, 3, 2)).astype(np.float32)
    scores[0, 1, 0] = np.nan
    labels = np.array([0, 1, 1])
    for seed in (0, 1):
        answers = AnswerCache(facts, AnswerFile(path), seed=seed)
        chunk = GridChunk(0, "mlp", np.array([2, 0]), scores[:, [2, 0]] + seed)
        answers.add("validation", (0.0, 0.5), [chunk], labels)
    again = AnswerCache(facts, AnswerFile(path), seed=0)
    found = again.scores("validation", 0, "mlp", (0.0, 0.5)).astype(np.float32)
    np.testing.assert_array_equal(found[:, [0, 2]], scores[:, [0, 2]])
    assert again.known("validation", 0, "mlp", [0.5]).tolist() == [[True, False, True]]
    with pytest.raises(ValueError, match="expected 3 answers of t validation, mlp of "):
        again.correct("validation", 0, "mlp", [0.5])
    with pytest.raises(
        ValueError, match="expected answers to all 2 examples of t test, got 0"
    ):
        again.labels("test")
    again.add("validation", (0.0, 0.5), [chunk], labels)  # the first ones are kept
    found = again.scores("validation", 0, "mlp", (0.0, 0.5)).astype(np.float32)
    np.testing.assert_array_equal(found[:, [0, 2]], scores[:, [0, 2]])


def test_the_layer_is_the_deepest_of_the_largest(model):
    rows = condition_numbers(model)
    found = layer_choice(rows, "attn", 1, "max")
    largest = [
        max(r.condition_number for r in rows if r.layer == l and r.module == "attn")
        for l in (0, 1)
    ]
    np.testing.assert_allclose(found.scores, largest)
    assert found.deepest == int(np.argmax(largest))
    assert layer_choice(rows, "all", 2, "min").deepest == 1
    names = {s.name for s in module_matrices(model, 0, "all")}
    assert {r.matrix for r in rows} == names
    with pytest.raises(
        ValueError, match="conditions: expected condition numbers of W_Z"
    ):
        layer_choice(rows, "W_Z", 1, "max")


@pytest.mark.slow
def test_a_given_layer_is_taken(model, task):
    found = algorithm1(model, task, "mlp", [0], 9, "nonsense", layer=0)
    assert (found.layer, found.layers) == (0, None)


def test_facts_tell_one_draw_from_another(task):
    assert facts_of(task) == facts_of(dataclasses.replace(task, sources=("here",)))
    assert facts_of(task) != facts_of(
        task.with_demonstrations(task.demonstrations[::-1])
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rates": [1]}, r"rates: expected numbers in \[0, 1\), got 1"),
        ({"rates": []}, "rates: expected at least one, got none"),
        ({"rates": [0.5, 0.5]}, "rates: expected no duplicates"),
        ({"rates": [0.99]}, "rate: expected a rate that leaves a rank >= 1 of 16"),
        ({"top_k": 0}, "k: expected a positive integer, got 0"),
        ({"top_k": 3}, "k: expected at most 2 layers, got 3"),
        ({"aggregate": "sum"}, "aggregate: expected one of"),
        ({"seed": -1}, "seed: expected an integer >= 0, got -1"),
        ({"level": 95.0}, "level: expected a number between 0 and 1, got 95.0"),
        ({"module": "W_Z"}, "module: expected one of"),
        ({"shots": 5}, "shots: expected at most 4 for toy, got 5"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line(model, task, changes, message):
    arguments = {"module": "mlp", "rates": RATES, "top_k": 1, "aggregate": "max"}
    with pytest.raises(ValueError, match=message) as caught:
        algorithm1(model, task, **(arguments | changes))
    assert "\n" not in str(caught.value)


def test_seed_and_level_are_checked_before_anything_is_evaluated(monkeypatch):
    monkeypatch.setattr("icltheory.bridge.layer_search.conduct", None)
    answers, rates = answers_of([[True, True]])
    for change in ({"seed": -1}, {"level": 1.0}):
        (name,) = change
        with pytest.raises(ValueError, match=f"^{name}: expected"):
            read_algorithm1(answers, 0, "mlp", rates, **change)


def test_a_validation_set_that_is_the_test_set_is_refused(model, task):
    same = dataclasses.replace(task, validation=task.test)
    with pytest.raises(ValueError, match="^task: expected validation examples of"):
        algorithm1(model, same, "mlp", [0, 0.5], 1, "max")


def test_demonstrations_from_the_test_set_are_refused_and_single_ones_warned(
    model, task
):
    """The lint runs inside, and before anything is evaluated."""
    arguments = ("mlp", [0.5], 1, "max")
    shown = task.with_demonstrations(task.test[:2])
    with pytest.raises(ValueError, match="^task: expected demonstrations examples of"):
        algorithm1(model, shown, *arguments)
    some = dataclasses.replace(task, validation=(task.test[4], *task.validation))
    with (
        pytest.warns(UserWarning, match="^toy validation example 4: the same text is"),
        pytest.raises(ValueError, match="layer: expected 0 to 1"),
    ):
        algorithm1(model, some, *arguments, layer=2)


def test_weights_that_are_not_finite_are_refused(model, task):
    W = np.array(model.params["layers"][1]["mlp"]["W_in"]["weight"])
    W[0, :2] = np.nan, np.inf
    mlp = {**model.params["layers"][1]["mlp"], "W_in": {"weight": W}}
    layers = (model.params["layers"][0], {**model.params["layers"][1], "mlp": mlp})
    broken = model.replace(params={**model.params, "layers": layers})
    place = r"params\['layers'\]\[1\]\['mlp'\]\['W_in'\]\['weight'\]"
    with pytest.raises(
        ValueError, match=f"^model: expected finite .* 2 NaN .*{place}$"
    ):
        algorithm1(broken, task, "attn", [0.5], 1, "max", layer=0)


def test_tasks_without_examples_and_answers_of_others_are_refused(model, task):
    for split in ("validation", "test"):
        none = dataclasses.replace(task, **{split: ()})
        with pytest.raises(ValueError, match=f"task: expected {split} examples of toy"):
            algorithm1(model, none, "mlp", RATES, 1, "max")
        few = dataclasses.replace(none, **{split: task.test[:1]}, denominator="n-1")
        with pytest.raises(
            ValueError, match=r"^labels: expected at least 2 examples f"
        ):
            algorithm1(model, few, "mlp", RATES, 1, "max")
    answers = AnswerCache(facts_of(task.with_demonstrations(task.demonstrations[::-1])))
    with pytest.raises(ValueError, match="answers: expected those to toy with these"):
        algorithm1(model, task, "mlp", RATES, 1, "max", answers=answers)
