"""Log-likelihoods against the logits of one row at a time."""

import jax
import numpy as np
import pytest

from icltheory.bridge.evaluation import log_likelihoods
from icltheory.bridge.evaluation import rows as rows_module
from icltheory.bridge.tokenizer import read_rows
from tests.bridge.evaluation_tasks import FAMILIES, tiny
from tests.bridge.test_evaluation import with_nan, with_rows
from tests.bridge.tiers import quick


def plain(model, row, start):
    """From all logits of a row alone, padded so that one program serves all rows."""
    ids, read = np.zeros((1, 160), int), len(row) - 1
    ids[0, :read] = row[:-1]
    logits = np.asarray(model.logits(ids, np.arange(160)[None] < read)[0, :read])
    logp = np.asarray(jax.nn.log_softmax(logits, axis=-1))
    places, wanted = np.arange(start - 1, len(row) - 1), np.array(row[start:])
    return logp[places, wanted].sum(), bool((logits[places].argmax(1) == wanted).all())


def rows_of(rng, count, longest):
    sizes = rng.integers(2, longest + 1, count)
    return [rng.integers(0, 128, size).tolist() for size in sizes]


@pytest.mark.slow
@pytest.mark.parametrize("family", quick(["groups"], list(FAMILIES)))
def test_they_are_those_of_one_row_at_a_time(family):
    model, rng = tiny(family), np.random.default_rng(3)
    rows = rows_of(rng, 7, 15)
    starts = [int(rng.integers(1, len(row))) for row in rows]
    # A row that the model itself would have written.
    told = np.asarray(model.logits(np.array([rows[0]]))[0, -1]).argmax()
    rows.append([*rows[0], int(told)])
    starts.append(len(rows[0]))
    found = log_likelihoods(model, rows, starts, batch_size=3)
    expected = [plain(model, row, s) for row, s in zip(rows, starts, strict=True)]
    np.testing.assert_allclose(found.log_likelihood, [e[0] for e in expected], 1e-9)
    assert found.greedy.tolist() == [e[1] for e in expected]
    assert found.greedy[-1]
    assert found.num_tokens.tolist() == [
        len(row) - s for row, s in zip(rows, starts, strict=True)
    ]


@pytest.mark.parametrize("family", quick(["groups"], list(FAMILIES)))
def test_rows_that_begin_alike_are_read_as_one_line(family, monkeypatch):
    """Options of 1 to 6 tokens, two of them alike in front, behind three contexts.

    Two contexts begin with the same 12 tokens, as questions behind demonstrations do.
    """
    model, rng, lines = tiny(family), np.random.default_rng(4), []
    run = rows_module._run

    def counted(model, tokens, answers):
        lines.append(int(tokens.mask.sum()))
        return run(model, tokens, answers)

    monkeypatch.setattr(rows_module, "_run", counted)
    contexts = [rng.integers(0, 128, size).tolist() for size in (12, 12)]
    contexts.append([*contexts[1], 5, 9])
    tails = [rng.integers(0, 128, size).tolist() for size in (1, 3, 6)]
    tails.append([*tails[1], 7])
    rows = [[*front, *tail] for tail in tails for front in contexts]
    starts = [len(front) for _ in tails for front in contexts]
    found = log_likelihoods(model, rows, starts)
    expected = [plain(model, row, s) for row, s in zip(rows, starts, strict=True)]
    np.testing.assert_allclose(found.log_likelihood, [e[0] for e in expected], 1e-9)
    assert found.greedy.tolist() == [e[1] for e in expected]
    assert sum(lines) < 0.45 * sum(len(row) - 1 for row in rows)


@pytest.mark.parametrize(
    ("rows", "starts", "message"),
    [
        (
            [],
            [],
            "starts: expected one start per row and at least one row, got 0 for 0",
        ),
        ([[1, 2]], [2], "rows: expected .* got 2 and start 2 in row 0"),
        ([[1, 2], [3]], [1, 1], "got 1 and start 1 in row 1"),
        ([[1, 128]], [1], "rows: expected tokens 0 to 127, got 128 in row 0"),
        ([[1] * 162], [1], "at most 161 tokens .* got 162 and start 1 in row 0"),
    ],
)
def test_rows_that_cannot_be_read_are_named(rows, starts, message):
    with pytest.raises(ValueError, match=message):
        log_likelihoods(tiny("gpt2"), rows, starts)


def test_sizes_of_batches_are_named():
    with pytest.raises(ValueError, match="^batch_size: expected a positive integer"):
        log_likelihoods(tiny("gpt2"), [[1, 2]], [1], batch_size=0)


@pytest.mark.parametrize("row", [[1.5, 2.0], "ab", 3, [[1, 2]], [True, False]])
def test_rows_are_whole_numbers(row):
    """Read before they become integers, which would cut 1.5 down to 1."""
    with pytest.raises(ValueError, match="rows: expected a sequence of whole numbers"):
        read_rows("rows", [row], 128)


def test_rows_keep_their_tokens():
    (row, empty) = read_rows("rows", [np.array([5, 127], np.uint8), []], 128)
    assert (row.tolist(), empty.tolist()) == ([5, 127], [])


def test_nothing_is_greedy_where_a_log_likelihood_is_nan():
    model, rows = tiny("groups"), [[1, 5, 0], [4, 9, 0]]
    poisoned = with_rows(model, "embed", [9], np.nan)
    for some in (rows, [[1, 5, 0], [1, 5, 9, 0]]):  # Of two contexts, and of one.
        found = log_likelihoods(poisoned, some, [2, 2])
        assert np.isnan(found.log_likelihood).tolist() == [False, True]
        assert not found.greedy[1]
        plainly = log_likelihoods(model, some, [2, 2])
        assert found.log_likelihood[0] == pytest.approx(plainly.log_likelihood[0])
    with pytest.raises(ValueError, match=r"finite weights, .*\['W_out'\]"):
        log_likelihoods(with_nan(model, 2, "mlp", "W_out"), rows, [2, 2])
