"""Evaluation against one prompt at a time, ties, NaN, denominators."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest

from icltheory.bridge import Rotary, evaluate
from icltheory.bridge.evaluation import evaluate_naive, evaluation_of, predict
from icltheory.bridge.sharding import leaf_at
from icltheory.layered.matrices import with_leaf
from tests.bridge.evaluation_tasks import Letters, choice, classification, tiny
from tests.raising import raises

BARE = Letters(bos=False)
# Shapes that the tests share.
SHAPES = {"batch_size": 4}


@pytest.mark.slow
@pytest.mark.parametrize("family", ["gpt2", "gptj", "groups", "nothing in front"])
def test_without_demonstrations(family):
    """Also where the questions do not begin with a common token."""
    model = tiny(family) if family != "nothing in front" else tiny("groups", BARE)
    task = classification(12)
    found, naive = evaluate(model, task, shots=0), evaluate_naive(model, task, shots=0)
    np.testing.assert_allclose(found.scores, naive.scores, atol=1e-10, rtol=0)
    np.testing.assert_array_equal(found.predictions, naive.predictions)
    assert found.accuracy == naive.accuracy
    assert len(set(evaluate_naive(model, task).predictions)) > 1


EMBED, HEAD = ("embed", "tokens"), ("head", "weight")


def with_rows(model, path, rows, values):
    """The model with rows of one of its arrays overwritten."""
    weights = np.array(leaf_at(model.params, path))
    weights[rows] = values
    return model.replace(params=with_leaf(model.params, path, jnp.array(weights)))


def with_nan(model, layer, module, matrix):
    """The model with one weight of a matrix NaN."""
    path = ("layers", layer, module, matrix, "weight")
    return with_rows(model, path, (0, 0), np.nan)


def test_equal_scores_go_to_the_first_label_and_are_counted():
    model, task = tiny("groups"), classification(12)
    one = model.params["head"]["weight"][2]
    ties = with_rows(model, HEAD, [3, 4], np.stack([one, one]))
    for found in (evaluate(ties, task, **SHAPES), evaluate_naive(ties, task)):
        assert (found.predictions == 0).all()
        assert (found.num_ties, found.num_nan) == (12, 0)
        assert found.accuracy == pytest.approx(4 / 12)
    # The second and third label are equal: a tie only where they are the best.
    ties = with_rows(model, HEAD, [3], model.params["head"]["weight"][4])
    found = evaluate(ties, task, **SHAPES)
    assert 0 < found.num_ties < 12
    assert found.num_ties == (found.predictions == 1).sum()
    assert set(found.predictions) <= {0, 1}


def test_nan_is_wrong_counted_and_stays_with_its_example():
    model, task = tiny("groups"), classification(12)
    token = Letters().letter("f")
    hit = np.array(["f" in e.fields["text"] for e in task.validation])
    assert 0 < hit.sum() < len(hit)
    assert "f" not in task.prefix()
    poisoned = with_rows(model, EMBED, [token], np.nan)
    for found in (evaluate(poisoned, task, **SHAPES), evaluate_naive(poisoned, task)):
        np.testing.assert_array_equal(found.predictions == -1, hit)
        np.testing.assert_array_equal(np.isnan(found.scores).any(axis=1), hit)
        assert found.num_nan == hit.sum()
        assert not found.correct[hit].any()
        assert found.num_ties == 0
    clean = evaluate(model, task, **SHAPES)
    np.testing.assert_allclose(found.scores[~hit], clean.scores[~hit], atol=1e-10)


def test_a_weight_that_all_prompts_meet_is_named_where_it_is_nan():
    broken = with_nan(tiny("groups"), 1, "mlp", "W_in")
    place = r"params\['layers'\]\[1\]\['mlp'\]\['W_in'\]\['weight'\]$"
    for run, how in ((evaluate, SHAPES), (evaluate_naive, {})):
        with pytest.raises(ValueError, match=f"^model: expected .* 1 NaN.*{place}"):
            run(broken, classification(12), **how)


def test_nan_of_all_examples_is_no_accuracy_of_zero():
    model, task = tiny("groups"), classification(12)
    shown = Letters().letter("\n")  # in every prompt
    found = evaluate(with_rows(model, EMBED, [shown], np.nan), task, **SHAPES)
    assert (found.num_nan, found.num_correct, found.num_ties) == (12, 0, 0)
    assert np.isnan(found.accuracy)
    # A tie beside NaN is no answer, whatever the label.
    scores = np.array([[1.0, 1.0, np.nan], [np.nan] * 3, [2.0, 2.0, 1.0]])
    for label in range(3):
        found = evaluation_of(scores, np.full(3, label))
        assert found.predictions.tolist() == [-1, -1, 0]
        assert found.correct.tolist() == [False, False, label == 0]
        assert (found.num_ties, found.num_nan) == (1, 2)


def test_the_denominator_is_the_tasks():
    model, task = tiny("groups"), classification(12)
    plain = evaluate(model, task, **SHAPES)
    other = evaluate(model, dataclasses.replace(task, denominator="n-1"), **SHAPES)
    assert plain.num_correct == other.num_correct > 0
    assert plain.accuracy == plain.num_correct / 12
    assert other.accuracy == other.num_correct / 11
    assert (plain.num_examples, other.num_examples) == (12, 12)


def test_what_scores_amount_to():
    scores = np.array([[1.0, 3.0], [2.0, 2.0], [np.nan, 9.0], [-np.inf, -np.inf]])
    found = evaluation_of(scores, np.array([1, 1, 1, 0]))
    assert found.predictions.tolist() == [1, 0, -1, 0]
    assert found.correct.tolist() == [True, False, False, True]
    assert (found.num_ties, found.num_nan, found.accuracy) == (2, 1, 0.5)
    assert predict(np.zeros((5, 4, 3))).shape == (5, 4)
    with pytest.raises(dataclasses.FrozenInstanceError):
        found.accuracy = 1.0  # pyrefly: ignore
    with raises("labels: expected at least 2 examples"):
        evaluation_of(scores[:1], np.array([0]), "n-1")
    with raises("denominator: expected one of"):
        evaluation_of(scores, np.zeros(4, int), "n+1")


def test_the_mean_of_capped_logits_is_refused():
    model = tiny("mixed", num_layers=1, sliding_window=9)
    with pytest.raises(ValueError, match="scoring: mean_logit .* evaluate_naive"):
        evaluate(model, choice(6, scoring="mean_logit"))


def test_frequencies_that_follow_the_length_are_refused():
    turning = Rotary(frequencies=(1.0, 0.3), switch=12, ntk=(100.0, 2.0))
    model = tiny("llama", rotary=turning)
    with pytest.raises(ValueError, match="at most 12 tokens.*evaluate_naive"):
        evaluate(model, classification(5))
    assert evaluate_naive(model, classification(5)).num_examples == 5
