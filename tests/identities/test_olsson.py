"""Olsson et al. (2022): an induction circuit by hand, and the scores it must have."""

import jax
import numpy as np
import pytest

from icltheory import induction
from icltheory.layered import attention_patterns
from tests.oracles import z_score

VOCAB, BLOCK, REPEATS = 50, 25, 4
T = BLOCK * REPEATS
TOKENS = np.tile(np.random.RandomState(0).choice(VOCAB, BLOCK, replace=False), REPEATS)


@pytest.fixture(scope="module")
def circuit():
    return induction.induction_circuit(VOCAB, T)


@pytest.fixture(scope="module")
def read(circuit):
    """Patterns, logits and scores of the circuit in one program."""

    @jax.jit
    def run(circuit):
        inputs = circuit.embed(TOKENS)
        patterns = attention_patterns(circuit.model, circuit.stack, inputs)
        scores = induction.head_scores(circuit.model, circuit.stack, inputs, TOKENS)
        return patterns, circuit.logits(TOKENS), scores

    return jax.tree.map(np.asarray, run(circuit))


@pytest.mark.statement("Olsson: induction heads")
def test_induction_head_matches_prefixes_and_previous_token_head_does_not(
    read, measured
):
    scores = read[2]
    prefix = np.asarray(scores.prefix_matching)[:, 0]
    measured("1 minus the score of the induction head", 1 - prefix[1])
    measured("score of the previous-token head", prefix[0])
    assert prefix[1] == pytest.approx(1.0, abs=1e-10)
    assert prefix[0] == pytest.approx(0.0, abs=1e-10)
    previous = np.asarray(scores.previous_token)[:, 0]
    assert previous[0] == pytest.approx(1.0, abs=1e-10)
    assert previous[1] < 0.05


@pytest.mark.statement("Olsson: induction heads")
def test_uniform_attention_has_the_counted_score(read, measured):
    place = np.arange(BLOCK, T)
    expected = np.mean((place // BLOCK) / (place + 1))
    measured("score of uniform causal attention", read[2].uniform)
    assert read[2].uniform == pytest.approx(expected, rel=1e-13)
    assert expected == pytest.approx(0.0313, abs=5e-5)


@pytest.mark.statement("Olsson: copying scores")
def test_copying_is_one_for_the_identity_and_minus_one_for_its_negative(measured):
    assert induction.copying_score(np.eye(VOCAB)) == 1
    assert induction.copying_score(-np.eye(VOCAB)) == -1
    assert float(induction.copying_score(-1e-3 * np.eye(VOCAB))) == pytest.approx(
        -1, rel=1e-12
    )
    assert induction.copying_score(0 * np.eye(VOCAB)) == 0
    random = np.random.RandomState(1).randn(30, VOCAB, VOCAB)
    scores = np.array([float(induction.copying_score(M)) for M in random])
    measured("mean of 30 random circuits", scores.mean())
    measured("z-score", z_score(scores, 0), below=4)
    assert np.abs(scores).max() < 0.15


@pytest.mark.statement("Olsson: copying scores")
@pytest.mark.slow
def test_induction_head_copies_by_both_scores(circuit, read, measured):
    heads = jax.jit(
        lambda c: induction.head_copying(c.model, c.stack, c.embedding, c.unembedding)
    )
    heads = heads(circuit)
    assert np.asarray(heads).ravel().tolist() == pytest.approx([0, 1], abs=1e-6)
    W_O, W_V = map(np.asarray, circuit.model.ov_factors(1, circuit.stack))
    maps = np.asarray(circuit.unembedding), np.asarray(circuit.embedding)
    M = maps[0] @ W_O[0] @ W_V[0] @ maps[1].T
    np.testing.assert_array_equal(M, np.eye(VOCAB))
    rows = np.arange(T) >= BLOCK
    ratio = float(induction.copying_ratio(read[0][1][0], M, TOKENS, rows))
    measured("copying ratio", ratio)
    assert ratio == pytest.approx(1.0, abs=1e-10)


@pytest.mark.statement("Olsson: induction heads")
def test_circuit_continues_every_repetition(read, measured):
    logits = np.asarray(read[1])
    right = logits[BLOCK:-1].argmax(axis=1) == TOKENS[BLOCK + 1 :]
    measured("next-token accuracy in the repeats", right.mean())
    assert right.all()


@pytest.mark.statement("Olsson: in-context score")
def test_in_context_score_is_that_of_the_circuit_by_hand(read, measured):
    """Losses from attention written out: uniform but for position 0, then exact."""
    losses = np.zeros(T - 1)
    strength = 30.0
    for t in range(T - 1):
        if t < BLOCK:
            # Position 0 reads itself in layer 1, and the keys of layer 2 leave it out.
            seen = TOKENS[1 : t + 1] if t else TOKENS[:1]
        else:
            seen = np.array([TOKENS[t + 1]])
        logits = strength * np.bincount(seen, minlength=VOCAB) / len(seen)
        losses[t] = np.log(np.exp(logits).sum()) - logits[TOKENS[t + 1]]
    logits = strength * read[1][:-1]
    normalizer = np.log(np.exp(logits).sum(axis=1, keepdims=True))
    got = (normalizer - np.take_along_axis(logits, TOKENS[1:, None], axis=1))[:, 0]
    np.testing.assert_allclose(got, losses, atol=1e-8)
    spans = (0, BLOCK - 1), (BLOCK, T - 1)
    score = induction.in_context_score(got, *spans)
    measured("in-context score", score)
    assert score == pytest.approx(
        float(induction.in_context_score(losses, *spans)), abs=1e-8
    )
    assert score == pytest.approx(-8.24, abs=0.01)
