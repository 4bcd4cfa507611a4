"""Scores of induction heads on arrays, against loops."""

import jax
import numpy as np
import pytest

from icltheory.induction import (
    copying_ratio,
    copying_score,
    find_heads,
    in_context_score,
    induction_circuit,
    prefix_matching_score,
    previous_token_score,
)

RNG = np.random.default_rng(0)
T = 12
TOKENS = RNG.integers(0, 4, size=(3, T))
WEIGHTS = RNG.dirichlet(np.ones(T), size=(3, T))  # in the future, too


def prefix_by_loops(weights, tokens, rows=None):
    found = []
    for b, row in enumerate(tokens):
        for t in range(T):
            after = {j + 1 for j in range(t) if row[j] == row[t]}
            if after and (rows is None or rows[b, t]):
                found.append(sum(weights[b, t, s] for s in after))
    return np.mean(found)


def test_prefix_matching_is_the_double_sum():
    got = prefix_matching_score(WEIGHTS, TOKENS)
    assert got == pytest.approx(prefix_by_loops(WEIGHTS, TOKENS), rel=1e-13)
    rows = RNG.random(size=TOKENS.shape) < 0.4
    got = prefix_matching_score(WEIGHTS, TOKENS, rows)
    assert got == pytest.approx(prefix_by_loops(WEIGHTS, TOKENS, rows), rel=1e-13)


def test_previous_token_and_in_context_scores_are_means():
    expected = np.mean([WEIGHTS[b, t, t - 1] for b in range(3) for t in range(1, T)])
    assert previous_token_score(WEIGHTS) == pytest.approx(expected, rel=1e-13)
    losses = RNG.random(size=(5, 600))
    got = in_context_score(losses)
    assert got == pytest.approx(losses[:, 500].mean() - losses[:, 50].mean())


def test_copying_by_factors_and_by_the_whole_circuit():
    left, right = RNG.normal(size=(9, 3)), RNG.normal(size=(3, 9))
    whole, small = copying_score(left @ right), copying_score(right @ left)
    assert whole == pytest.approx(float(small), abs=1e-9)
    values = np.linalg.eigvals(right @ left)
    assert small == pytest.approx(values.real.sum() / np.abs(values).sum())
    assert copying_score(np.zeros((2, 2))) == 0


def test_copying_ratio_is_its_definition():
    A, M, tokens = WEIGHTS[0], RNG.normal(size=(4, 4)), TOKENS[0]
    shares = []
    for t in range(T):
        logits = sum(A[t, s] * M[:, tokens[s]] for s in range(T))
        raised = np.maximum(logits - logits.mean(), 0)
        shares.append(raised[tokens[A[t].argmax()]] / raised.sum())
    got = copying_ratio(A, M, tokens)
    assert got == pytest.approx(2 * np.mean(shares) - 1, rel=1e-12)
    rows = np.arange(T) > 5
    got = copying_ratio(A, M, tokens, rows)
    assert got == pytest.approx(2 * np.mean(shares[6:]) - 1, rel=1e-12)
    assert copying_ratio(A, np.zeros((4, 4)), tokens) == -1


TWO, THREE, ZEROS = np.eye(2), np.eye(3), np.zeros(2, int)


@pytest.mark.parametrize(
    ("function", "args", "message"),
    [
        (prefix_matching_score, (THREE, np.arange(3)), "occurs twice"),
        (prefix_matching_score, (THREE, np.arange(4)), "attention: expected"),
        (prefix_matching_score, (TWO, ZEROS, [True] * 3), "rows: expected shape"),
        (copying_ratio, (TWO, TWO, ZEROS, [False] * 2), "rows: expected at least one"),
        (copying_ratio, (TWO, THREE, np.array([0, 3])), "tokens: expected"),
        (previous_token_score, (np.ones((1, 1)),), "attention: expected shape"),
        (copying_score, (np.ones((2, 3)),), "circuit: expected shape"),
        (in_context_score, (np.ones(100),), "late: expected positions"),
        (in_context_score, (np.ones(9), (3, 3), 4), "early: expected positions"),
        (induction_circuit, (0, 4), "vocab_size: expected a positive integer"),
        (
            lambda: jax.eval_shape(induction_circuit(3, 4).embed, np.zeros(5, int)),
            (),
            "tokens: expected at most 4, got 5",
        ),
    ],
)
def test_impossible_inputs_are_refused(function, args, message):
    with pytest.raises(ValueError, match=message):
        function(*args)


def test_the_induction_head_of_the_circuit_is_found():
    circuit = induction_circuit(8, 16)
    given = {"vocab_size": 8, "length": 6, "embed": circuit.embed}
    found = find_heads(circuit.model, circuit.stack, **given)
    assert [(one.layer, one.head) for one in found] == [(1, 0)]
    assert found[0].prefix_matching == pytest.approx(1, abs=1e-6)
    # At any threshold all heads are listed, the largest score first.
    every = find_heads(circuit.model, circuit.stack, threshold=0.0, **given)
    assert [one.layer for one in every] == [1, 0]
    assert every[1].previous_token > 0.9
    with pytest.raises(ValueError, match="params: expected it, as the model has none"):
        find_heads(circuit.model, vocab_size=8)
    with pytest.raises(ValueError, match="vocab_size: expected it, as the model has"):
        find_heads(circuit.model, circuit.stack)
    with pytest.raises(ValueError, match="length: expected at most 8 tokens, got 64"):
        find_heads(circuit.model, circuit.stack, vocab_size=8)
