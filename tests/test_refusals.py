"""Bad input that no other quick test gives: each error says what was expected."""

import dataclasses
import re
import types

import flax.serialization
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from experiments import gradient_flow, ltb_gap
from experiments._patterns.scores import check_sums
from experiments.garg_linear.config import PRESETS as GARG_PRESETS
from experiments.prune_icl.config import PRESETS as PRUNE_PRESETS
from icltheory import bounds, statistics
from icltheory.attention import LinearAttentionStack
from icltheory.bridge import _config, _msgpack
from icltheory.regression import ltb
from icltheory.training import Ramp, devices, with_average
from tests.bridge.evaluation_tasks import tiny

ONES = np.ones(3)
WIDE = LinearAttentionStack(*(jnp.zeros((1, 41, 41)) for _ in range(3)))
BATCH = types.SimpleNamespace(reason_code=jnp.zeros((2, 3), int))
PARTS = ltb.GDBeta(jnp.zeros(2), jnp.eye(2)).effective()

GARG, PRUNE = GARG_PRESETS["cpu"], PRUNE_PRESETS["cpu"]
RAMPS = dataclasses.replace(GARG.curriculum, dims=Ramp(1, 2))


def changed(config, **parts):
    """A config with one part changed, for the check at its creation."""
    return lambda: dataclasses.replace(config, **parts)


@pytest.mark.parametrize(
    ("run", "message"),
    [
        (lambda: bounds.Bound.reason.fget(BATCH), "one concrete bound, got a batch"),
        (
            lambda: bounds.smoothing_bound(ONES[None], 0.1, 0.1, 1.0, 8, 1.0),
            "weights: expected at least 2 draws, got 1",
        ),
        (
            lambda: bounds.generalization_bound(
                WIDE, jnp.ones((4, 41)), 2, 1.0, prior="held_out"
            ),
            "prior: expected 'isotropic' for n > 40, got n = 41",
        ),
        (
            lambda: statistics.mark_correct([[0, 1]], [[0, 1]]),
            "labels: expected one axis, got shape (1, 2)",
        ),
        (
            lambda: statistics.mark_correct([0, 1, 1], [0, 1]),
            "predictions: expected 2 along the last axis, one a label, got shape (3,)",
        ),
        (lambda: PARTS.rescaled(0), "factor: expected a finite number but 0, got 0"),
        (
            lambda: with_average(optax.sgd(0.1), 0.9).update(
                ONES, with_average(optax.sgd(0.1), 0.9).init(ONES)
            ),
            "params: expected the weights, got None",
        ),
        (lambda: tiny("gpt2").decoder.matrices(9), "layer: expected 0 to"),
        (lambda: check_sums(None, ()), "sums: expected at least one, got none"),
        (
            changed(ltb_gap.Config(), dims=()),
            "dims: expected some, at least 1, got ()",
        ),
        (
            changed(gradient_flow.Config(), condition=0.5),
            "expected condition >= 1, and steps and batches, got none",
        ),
        (
            changed(PRUNE, gpt2=PRUNE.linear),
            "gpt2.model: expected gpt2, got linear",
        ),
        (
            changed(
                GARG, curriculum=dataclasses.replace(GARG.curriculum, dims=Ramp(1, 2))
            ),
            "curriculum.dims.end: expected the full",
        ),
    ],
)
def test_what_was_expected_is_said(run, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        run()


def test_files_of_models_that_hold_something_else_are_named(tmp_path):
    path = tmp_path / "config.json"
    for content, message in (
        (b"\xff\xfe", "expected JSON in UTF-8"),
        (b"[1, 2]", "expected a JSON object, got list"),
    ):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=re.escape(f"{path}: {message}")):
            _config.read_json(path)
    path = tmp_path / "flax_model.msgpack"
    for tree, message in (
        ([1, 2], "expected a tree of arrays, got list"),
        ({"params": {"a": {"b": "text"}}}, "expected an array at a/b, got str"),
    ):
        path.write_bytes(flax.serialization.msgpack_serialize(tree))
        with pytest.raises(ValueError, match=re.escape(message)):
            _msgpack.FlaxTree(tmp_path, np.dtype("float32"))


def test_without_a_mesh_members_are_mapped():
    step = devices.over_members(lambda state: (state + 1, state.sum()), None)
    states, sums = jax.jit(step)(jnp.arange(6.0).reshape(3, 2))
    assert sums.tolist() == [1.0, 5.0, 9.0]
    assert states[0].tolist() == [1.0, 2.0]
