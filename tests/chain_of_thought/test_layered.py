"""Inference as a layered model: run, replaced, pruned."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from icltheory import chain_of_thought as cot
from icltheory.layered import (
    Batched,
    LayeredModel,
    forward,
    get_matrix,
    replace_matrix,
)
from icltheory.pruning import sweep
from tests.chain_of_thought import drawn
from tests.chain_of_thought.test_attention import DIM


def wrong_steps(found):
    return jnp.mean(found.wrong, axis=0, dtype=float)


@pytest.mark.parametrize(
    ("method", "answers"), [("cot", 2), pytest.param("icl", 1, marks=pytest.mark.slow)]
)
def test_it_speaks_the_protocol_and_can_be_pruned(method, answers):
    task = cot.ReasoningTask(drawn.alphabet(2, 2, DIM), cot.faithful_transitions(1.0))
    keys = jax.random.split(jax.random.key(1), 20)
    prompts = jax.jit(jax.vmap(lambda k: task.sample(k, 9, 0.6)))(keys)
    params, model = cot.matching_attention(DIM), cot.LayeredReasoner(method)
    assert isinstance(model, LayeredModel)
    whole = jax.jit(functools.partial(forward, Batched(model)))(params, prompts)
    assert whole.wrong.shape == (20, answers)
    assert not np.any(whole.wrong)
    for spec in model.matrices(0):
        W = get_matrix(params, spec)
        np.testing.assert_array_equal(W, getattr(params, spec.name))
        same = replace_matrix(params, spec, W)
        np.testing.assert_array_equal(getattr(same, spec.name), W)
    # of 14 singular values of W_Q the 7 of the upper half are at work
    errors = sweep(
        Batched(model),
        0,
        "W_Q",
        [0, 0.5, 0.9],
        wrong_steps,
        params=params,
        inputs=prompts,
    )
    np.testing.assert_array_equal(errors[:2], 0)
    assert np.any(errors[2] > 0)


def test_unknown_names_are_refused():
    with pytest.raises(ValueError, match="method: expected one of 'cot', 'icl'"):
        cot.LayeredReasoner("tot")
    with pytest.raises(ValueError, match="layer: expected 0, got 1"):
        cot.LayeredReasoner().matrices(1)
