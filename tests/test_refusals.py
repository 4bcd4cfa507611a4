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
from experiments._trained import TrainedModels
from experiments.garg_linear.config import PRESETS as GARG_PRESETS
from experiments.garg_recipe.config import PRESETS as RECIPE_PRESETS
from experiments.prune_icl.config import PRESETS as PRUNE_PRESETS
from experiments.small_lm import model
from icltheory import _safetensors, bounds
from icltheory.attention import LinearAttentionStack
from icltheory.bridge import _config, _msgpack
from icltheory.bridge.answer_cache import AnswerCache, TaskFacts
from icltheory.bridge.cached_evaluator import CachedEvaluator
from icltheory.bridge.families._gated import decoder_sizes
from icltheory.bridge.records import Records
from icltheory.bridge.spectra import SingularSystems
from icltheory.linalg._matrix import as_matrix
from icltheory.models import LinearStack
from icltheory.regression import ltb
from icltheory.regression.flow._start import read_start
from icltheory.regression.tasks import LinearRegression
from icltheory.training import Ramp, devices, with_average
from icltheory.trajectory import depth_errors
from icltheory.trajectory._recursion import prepare
from tests.bridge.evaluation_tasks import classification, tiny

ONES = np.ones(3)
WIDE = LinearAttentionStack(*(jnp.zeros((1, 41, 41)) for _ in range(3)))
BATCH = types.SimpleNamespace(reason_code=jnp.zeros((2, 3), int))
PARTS = ltb.GDBeta(jnp.zeros(2), jnp.eye(2)).effective()

GARG, PRUNE = GARG_PRESETS["cpu"], PRUNE_PRESETS["cpu"]
TASK = LinearRegression.isotropic(2)
OTHER = types.SimpleNamespace(recipe=types.SimpleNamespace(model="gpt2"))
FACTS = TaskFacts("t", "paper", "label_token", "n", ("a", "b"), {}, "")
OTHER_ANSWERS = AnswerCache(FACTS, method="other")
BATCHES = jnp.ones((1, 4, 2)), jnp.ones((1, 4))


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
            lambda: bounds.held_out_bound(
                bounds.noisy_steps(WIDE, jnp.ones((4, 41)), 2), 1.0, 3
            ),
            "steps: expected tokens of width n <= 40, got n = 41",
        ),
        (lambda: PARTS.rescaled(0), "factor: expected a number other than 0, got 0"),
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
            "dims: expected at least one value, each at least 1, got ()",
        ),
        (
            changed(gradient_flow.Config(), condition=0.5),
            "condition, step_shares, batch_sizes: expected condition >= 1",
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
        (
            changed(RECIPE_PRESETS["cpu"].baseline, last_float32=1.0),
            "last_float32: expected a share in [0, 1), got 1.0",
        ),
        (lambda: as_matrix(ONES), "W: expected shape (..., m, n), got (3,)"),
        (
            lambda: prepare(ONES, ONES[None], "shared", 1.0),
            "stack: expected a LinearAttentionStack, got ndarray",
        ),
        (
            lambda: read_start(TASK, 3, TASK),
            "model: expected one of GDBeta, LSA, LTB, EffectiveParameters, got Line",
        ),
        (lambda: TrainedModels.stack(OTHER), "model: expected linear, got gpt2"),
        (
            lambda: decoder_sizes(
                _config.Config({"hidden_size": 6, "num_attention_heads": 4})
            ),
            "num_attention_heads: expected a divisor of hidden_size 6, got 4",
        ),
        (
            lambda: CachedEvaluator(OTHER_ANSWERS, None, classification(2)),
            "method: expected 'other', as the answers in the cache, got 'svd'",
        ),
        (
            lambda: _safetensors._entry(
                {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]}
            ),
            "sizes (-1,), (0, 4)",
        ),
        (
            lambda: LinearStack(3, 1).init(jax.random.key(0), *BATCHES),
            "X: expected width 3, got 2",
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


def test_files_that_changed_since_are_named(tmp_path):
    records = Records(tmp_path / "records.jsonl", ("k",))
    records.append([{"k": 1}])
    records.path.write_text("")
    with pytest.raises(ValueError, match="expected an append-only file of at least"):
        records.append([{"k": 2}])
    systems = SingularSystems(tmp_path / "systems")
    systems.singular_values(np.eye(3))
    (path,) = systems.folder.iterdir()
    np.savez(path, s=np.ones(2))
    with pytest.raises(ValueError, match=r"\(2,\) singular values"):
        systems.singular_values(np.eye(3))


def test_errors_over_depth_need_float64():
    stack = LinearAttentionStack(*(jnp.eye(2)[None] for _ in range(3)))
    with jax.enable_x64(False), pytest.raises(ValueError, match="jax_enable_x64"):
        depth_errors(stack, jnp.eye(2), ONES[:2], demo_updates="shared")


def test_a_process_that_no_launcher_started_is_told_what_to_give(monkeypatch):
    def initialize(**_):
        raise ValueError("no launcher")

    monkeypatch.setattr(jax.distributed, "initialize", initialize)
    with pytest.raises(ValueError, match=r"^coordinator: expected the host:port of pr"):
        devices.initialize_distributed()


def test_experiments_refuse_other_checkpoints(monkeypatch):
    monkeypatch.setattr(model, "VOCABULARY", ("one", "two"))
    with pytest.raises(ValueError, match=r"^heads\.checkpoint: expected the small"):
        model.load("experiments/small_lm/checkpoint", "heads.checkpoint")
