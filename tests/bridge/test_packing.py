"""Several questions in a row: each is answered as if it stood alone."""

import dataclasses

import numpy as np
import pytest

from icltheory.bridge import Evaluator, evaluate, prune_model
from icltheory.bridge.evaluation import evaluate_naive, tokenize
from icltheory.bridge.evaluation.batches import PackedBatches, pack
from icltheory.bridge.evaluation.prompts import common_beginning
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


def test_alone_every_sequence_has_a_row():
    prompts = tokenize(Reader(Letters()), choice(7, longest=5))
    for chosen in (None, [5, 2]):
        numbers = []
        for batch in PackedBatches(prompts, 16, 4, alone=True)(chosen):
            ids, mask, *ends = batch.tokens
            assert ends == [None, None]
            numbers += batch.sequences.tolist()
            for number, place in zip(batch.sequences, batch.places, strict=True):
                assert tuple(ids[place, mask[place]]) == prompts.read(int(number))
        wanted = range(7) if chosen is None else chosen
        assert sorted(numbers) == sorted(2 * n + k for n in wanted for k in range(2))


def test_some_examples_share_few_shapes():
    prompts = tokenize(Reader(Letters()), classification(60, 2))
    batches, rng = PackedBatches(prompts, 16, 16), np.random.default_rng(0)
    shapes = set()
    for _ in range(30):
        chosen = rng.permutation(60)[: rng.integers(0, 60)]
        seen = []
        for batch in batches(chosen):
            shapes.add(batch.tokens.ids.shape)
            seen += batch.complete.tolist()
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
    batches = PackedBatches(prompts, 4096, 8)
    costs = {
        length: length * len(pack(sizes, length, int(np.ceil(length / sizes.mean()))))
        for length in (104, 208, 312)
    }
    assert batches.length == min(costs, key=costs.__getitem__) != 104


def test_rows_are_fewer_where_tokens_would_make_too_many_pairs():
    prompts = tokenize(Reader(Letters()), classification(30, 2, longest=5))
    batches = PackedBatches(prompts, 16, 30)
    pairs = batches.length * (len(prompts.prefix) + batches.length)
    for most, rows in ((2 * pairs + 1, 2), (1, 1), (10**9, batches.rows)):
        found = PackedBatches(prompts, 16, 30, most)
        assert found.rows == rows
        seen = [number for batch in found() for number in batch.complete.tolist()]
        assert sorted(seen) == list(range(30))
    assert batches.rows > 2


def read_by(batch):
    """What the model reads of each sequence, and which of its tokens are asked for."""
    ids, mask, ends, stems = batch.tokens
    slots = batch.answers.counted.shape[2]
    for number, place in zip(batch.sequences.tolist(), batch.places, strict=True):
        row, slot = divmod(int(place), slots)
        counted = batch.answers.counted[row, :, slot]
        last = batch.answers.places[row, counted].max()
        segments = np.searchsorted(ends[row], np.arange(ids.shape[1]))
        segment = segments[last]
        seen = (segments == segment) | (segments == stems[row, segment])
        seen &= mask[row] & (np.arange(ids.shape[1]) <= last)
        yield number, tuple(ids[row, seen]), tuple(batch.answers.tokens[row, counted])


def _rows(batch):
    """Rows of a batch that do not repeat its last one."""
    return 1 + int(batch.places.max()) // batch.answers.counted.shape[2]


@pytest.mark.parametrize("scoring", ["log_likelihood", "mean_logit"])
def test_what_options_begin_with_stands_once(scoring):
    prompts = tokenize(Reader(Letters()), choice(20, 2, longest=5, scoring=scoring))
    batches, seen, tokens = PackedBatches(prompts, 16, 4), [], 0
    for batch in batches():
        tokens += batch.tokens.mask[: _rows(batch)].sum()
        for number, read, asked in read_by(batch):
            seen.append(number)
            row, start = prompts.rows[number], prompts.starts[number]
            if scoring == "mean_logit":
                assert read == asked == row
            else:
                assert (read, asked) == (row[:-1], row[start:])
    assert sorted(seen) == list(range(40))
    both = np.array([len(prompts.read(number)) for number in range(40)])
    pairs = zip(prompts.rows[::2], prompts.rows[1::2], strict=True)
    stems = [common_beginning(pair, min(map(len, pair))) for pair in pairs]
    # Nothing but a stem is read once for two options.
    assert sum(both) - sum(stems) <= tokens <= sum(both) - sum(stems) + len(stems)
    assert sum(stems) > 0.3 * sum(both)


def test_an_example_that_is_longer_than_a_row_is_divided():
    """One question of 60 tokens with ten options of 10, a hundred of 8 and of 3."""
    task = classification(101, 2, longest=1, scoring="log_likelihood")
    prompts, rng = tokenize(Reader(Letters()), task), np.random.default_rng(0)

    def tokens(size):
        return tuple(rng.integers(0, 128, size).tolist())

    sizes = [(60, 10)] + [(8, 3)] * 100
    questions = [(tokens(question), option) for question, option in sizes]
    rows = [(*q, number, *tokens(o - 1)) for q, o in questions for number in range(10)]
    starts = [question for question, _ in sizes for _ in range(10)]
    prompts = dataclasses.replace(
        prompts, rows=tuple(rows), starts=tuple(starts), num_options=10
    )
    batches = PackedBatches(prompts, 4096, 1)
    assert batches.length == 144
    assert [len(g) for g in batches.groups if g[0] < 10] == [9, 1]
    found = {}
    for batch in batches():
        found |= {n: (*read, asked[-1]) for n, read, asked in read_by(batch)}
        # An example comes with the batch of its last option.
        assert {10 * n + k for n in batch.complete for k in range(10)} <= set(found)
    assert found == dict(enumerate(rows))


OPTIONS = [("groups", "log_likelihood"), ("gpt2", "mean_logit")]
OPTIONS += [(f, "log_likelihood") for f in ("gpt2", "gptj", "mixed")]
OPTIONS += [("groups", "mean_logit")]


@pytest.mark.slow
@pytest.mark.parametrize("case", OPTIONS, ids="-".join)
def test_options_behind_one_question_are_scored_as_single_rows(case):
    """Questions longer than the window of 9, whose options begin with one another."""
    family, scoring = case
    model, task = tiny(family), choice(9, 2, longest=5, scoring=scoring)
    alike = [e._replace(fields={**e.fields, "b": e.fields["a"] + " far"})
             for e in task.validation]  # fmt: skip
    task = dataclasses.replace(task, validation=tuple(alike))
    found = evaluate(model, task, batch_size=4)
    naive = evaluate_naive(model, task)
    np.testing.assert_allclose(found.scores, naive.scores, rtol=0, atol=1e-9)


SCORED = [("groups", s, "float64") for s in SCORINGS]
SCORED += [(f, "label_token", "float64") for f in ("gpt2", "gptj", "mixed")]
SCORED += [("groups", s, "float32") for s in ("average_log_likelihood", "mean_logit")]
QUICK = [("groups", s, "float64") for s in ("label_token", "average_log_likelihood")]


@pytest.mark.parametrize("case", quick(QUICK, SCORED), ids="-".join)
def test_packed_questions_are_scored_as_single_ones(case):
    """Options of different lengths; batches end between options of an example.

    With windows, learned and rotary positions, and layers of two kinds.
    """
    family, scoring, dtype = case
    model, atol = tiny(family, dtype=dtype), 1e-9 if dtype == "float64" else 2e-5
    task = choice(14, 2, scoring=scoring)
    if scoring in ("label_token", "pmi", "contextual_calibration"):
        task = classification(14, 2, longest=5, scoring=scoring)
    models = [(), "1:attn:0.5"]
    packed = Evaluator(model, task, batch_size=3).scores("validation", models)
    # Of 1 to 10: sums of another length are taken in another order.
    for one, other in zip(packed, (model, prune_model(model, models[1])), strict=True):
        naive = evaluate_naive(other, task)
        np.testing.assert_allclose(one, naive.scores, rtol=0, atol=atol)
