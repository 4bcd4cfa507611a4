"""Several questions in a row: each is answered as if it stood alone."""

import dataclasses

import numpy as np
import pytest

from icltheory.bridge import evaluate, evaluate_rates
from icltheory.bridge.evaluation import Grid, evaluate_naive, tokenize
from icltheory.bridge.evaluation.packing import PackedBatches, pack
from icltheory.bridge.tasks import SCORINGS
from tests.bridge.evaluation_tasks import Letters, choice, classification, tiny
from tests.bridge.test_evaluation_prompts import Reader
from tests.bridge.tiers import quick


@pytest.mark.parametrize("most", [3, 100])
def test_rows_hold_every_sequence_once_and_are_nearly_full(most):
    """Lengths as those of SST-2; without a limit 3 % more rows than tokens need."""
    rng = np.random.default_rng(0)
    sizes = np.clip(rng.lognormal(2.9, 0.5, 500).astype(int), 3, 60)
    rows = pack(sizes, 64, most)
    assert sorted(n for row in rows for n in row) == list(range(500))
    assert all(sizes[row].sum() <= 64 and len(row) <= most for row in rows)
    if most == 100:
        assert len(rows) <= 1.03 * sizes.sum() / 64


def test_a_batch_says_where_each_question_ends():
    prompts = tokenize(Reader(Letters()), classification(40, 2))
    for padding in ("right", "left"):
        batches, seen, shapes = PackedBatches(prompts, 16, 8, padding), [], set()
        for batch in batches():
            ids, mask, ends = batch.tokens
            shapes.add((ids.shape, ends.shape))
            seen += batch.examples.tolist()
            for number, place in zip(batch.sequences, batch.places, strict=True):
                row, slot = divmod(int(place), ends.shape[1])
                begin = mask[row].argmax() if slot == 0 else ends[row, slot - 1] + 1
                kept = slice(begin, ends[row, slot] + 1)
                assert tuple(ids[row, kept]) == prompts.rows[number]
                assert mask[row, kept].all()
        assert sorted(seen) == list(range(40))
        assert len(shapes) == 1


def test_some_examples_share_few_shapes():
    prompts = tokenize(Reader(Letters()), classification(60, 2))
    batches, rng = PackedBatches(prompts, 16, 16, "right"), np.random.default_rng(0)
    shapes = set()
    for _ in range(30):
        chosen = rng.permutation(60)[: rng.integers(0, 60)]
        seen = []
        for batch in batches(chosen):
            shapes.add(batch.tokens.ids.shape)
            seen += batch.examples.tolist()
        assert sorted(seen) == sorted(chosen.tolist())
    assert len({length for _, length in shapes}) == 1
    assert len(shapes) <= 1 + np.log2(batches.rows) + 1


def test_the_length_of_rows_is_that_of_fewest_operations():
    """Questions of just over half of the longest fill rows of twice that length."""
    task = classification(30, 2, longest=1)
    prompts = tokenize(Reader(Letters()), task)
    sizes = np.array([70] * 29 + [104])
    rows = tuple(tuple([1] * size) for size in sizes)
    prompts = dataclasses.replace(prompts, rows=rows)
    batches = PackedBatches(prompts, 4096, 8, "right")
    costs = {
        length: length * len(pack(sizes, length, int(np.ceil(length / sizes.mean()))))
        for length in (104, 208, 312)
    }
    assert batches.length == min(costs, key=costs.__getitem__) != 104


def test_rows_are_fewer_where_tokens_would_make_too_many_pairs():
    prompts = tokenize(Reader(Letters()), classification(30, 2, longest=5))
    batches = PackedBatches(prompts, 16, 30, "right")
    pairs = batches.length * (len(prompts.prefix) + batches.length)
    for most, rows in ((2 * pairs + 1, 2), (1, 1), (10**9, batches.rows)):
        found = PackedBatches(prompts, 16, 30, "right", most)
        assert found.rows == rows
        seen = [number for batch in found() for number in batch.examples.tolist()]
        assert sorted(seen) == list(range(30))
    assert batches.rows > 2


CASES = [(f, "right") for f in ("groups", "gpt2", "gptj", "mixed")]
CASES += [("groups", "left")]


@pytest.mark.parametrize("case", quick(CASES[:1], CASES), ids="-".join)
def test_packed_questions_are_answered_as_single_ones(case):
    """With windows, learned and rotary positions, and layers of two kinds."""
    family, padding = case
    model, task = tiny(family), classification(14, 2, longest=5)
    found = evaluate(model, task, batch_size=4, padding=padding)
    # In float64; sums of another length are taken in another order.
    naive = evaluate_naive(model, task)
    np.testing.assert_allclose(found.scores, naive.scores, rtol=0, atol=1e-9)


def _rows(batch, batches):
    """Rows of a batch that do not repeat its last one."""
    return 1 + int(batch.places.max()) // batches.most


def test_an_example_comes_with_the_batch_of_its_last_option():
    """Three options of 2 to 40 tokens, two sequences a batch."""
    task = classification(12, 2, longest=5, scoring="log_likelihood")
    prompts = tokenize(Reader(Letters()), task)
    batches = PackedBatches(prompts, 16, 1, "right")
    for chosen in (None, [7, 2, 11]):
        seen, complete, counted = [], [], 0
        for batch in batches(chosen):
            seen += batch.sequences.tolist()
            for number in batch.examples.tolist():
                assert {3 * number + k for k in range(3)} <= set(seen)
                assert number in batch.sequences // 3
            complete += batch.examples.tolist()
            # Each option's tokens are read once, none of those of another row.
            sizes = [len(prompts.rows[n]) - prompts.starts[n] for n in seen]
            counted += int(batch.answers.counted[: _rows(batch, batches)].sum())
            assert counted == sum(sizes)
        assert sorted(complete) == sorted(range(12) if chosen is None else chosen)
        assert sorted(seen) == sorted(3 * n + k for n in complete for k in range(3))


SCORED = [(s, "float64") for s in SCORINGS]
SCORED += [("average_log_likelihood", "float32"), ("mean_logit", "float32")]


@pytest.mark.parametrize(
    "case",
    quick([("average_log_likelihood", "float64"), ("mean_logit", "float32")], SCORED),
    ids="-".join,
)
def test_every_scoring_of_packed_questions_is_that_of_single_ones(case):
    """Options of different lengths; batches end between options of an example."""
    scoring, dtype = case
    model, atol = tiny("groups", dtype=dtype), 1e-9 if dtype == "float64" else 2e-5
    if scoring in ("label_token", "pmi", "contextual_calibration"):
        task = classification(14, 2, longest=5, scoring=scoring)
    else:
        task = choice(14, 2, scoring=scoring)
    packed, single = (
        evaluate_rates(model, task, 1, "attn", (0, 0.5), packed=one, batch_size=3)
        for one in (True, False)
    )
    # Of 1 to 10: sums of another length are taken in another order.
    for a, b in zip(packed, single, strict=True):
        np.testing.assert_allclose(a.scores, b.scores, rtol=0, atol=atol)
    naive = evaluate_naive(model, task)
    np.testing.assert_allclose(packed[0].scores, naive.scores, rtol=0, atol=atol)


@pytest.mark.slow
def test_races_over_packed_questions_are_those_over_single_ones():
    model, task = tiny("groups", num_layers=2), classification(30, 2, longest=5)
    packed, single = (
        evaluate_rates(model, task, 1, "attn", (0, 0.5), packed=one, batch_size=8)
        for one in (True, False)
    )
    for a, b in zip(packed, single, strict=True):
        np.testing.assert_allclose(a.scores, b.scores, rtol=0, atol=1e-9)
    grid = Grid(model, task, [1], ["attn"], (0, 0.5), batch_size=8)
    chosen = [7, 3, 22, 9, 28]
    right = np.stack([one.correct for one in single])
    np.testing.assert_array_equal(grid.correct([1, 0], chosen), right[::-1, chosen])
