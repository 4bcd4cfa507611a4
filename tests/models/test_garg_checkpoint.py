"""Checkpoints of Garg et al.: predictions of the published architecture, and refusals.

The fixture holds a model of transformers and what it predicts. With torch and
transformers a twin of another size is built here, and torch's own files are read:

    uv run --with torch --with transformers pytest tests/models/test_garg_checkpoint.py
"""

import builtins
import functools
import re
from pathlib import Path

import jax
import numpy as np
import pytest

from icltheory.models import GPT2, load_garg_checkpoint
from icltheory.models._safetensors import open_safetensors, write_safetensors

FOLDER = Path(__file__).parent / "fixtures"
FIXTURE = FOLDER / "garg.safetensors"
# float32 against float64 through two blocks: 100 roundings of 6e-8, relative to 1.
TOLERANCE = 1e-5


@functools.cache
def tensors():
    return {name: one.read() for name, one in open_safetensors(FIXTURE).items()}


def written(path, **changes):
    """The fixture's tensors with changes; ``None`` leaves one out."""
    found = {**tensors(), **changes}
    found = {name: value for name, value in found.items() if value is not None}
    write_safetensors(path, found)
    return path


def predicted(loaded, X, y):
    run = jax.jit(loaded.model.apply)
    return np.asarray(run({"params": loaded.params}, np.float32(X), np.float32(y)))


def raises(message, kind=ValueError):
    return pytest.raises(kind, match=re.escape(message))


@pytest.mark.statement("Garg: Section 3, architecture")
def test_the_fixture_predicts_what_transformers_predicts():
    loaded = load_garg_checkpoint(FIXTURE, num_heads=2)
    sizes = {"width": 8, "num_layers": 2, "num_heads": 2}
    assert loaded.model == GPT2(dim=3, num_positions=12, **sizes)
    with np.load(FOLDER / "garg.npz") as file:
        stored = dict(file)
    found = predicted(loaded, stored["X"], stored["y"])
    assert np.ptp(stored["expected"]) > 0.3
    np.testing.assert_allclose(found, stored["expected"], atol=TOLERANCE)
    # The heads are no part of the file, and matter.
    other = load_garg_checkpoint(FIXTURE, num_heads=4)
    wrong = predicted(other, stored["X"], stored["y"])
    assert np.abs(wrong - stored["expected"]).max() > 0.01


def test_parameters_are_those_of_the_module():
    loaded = load_garg_checkpoint(FIXTURE, num_heads=2)
    X = np.zeros((1, 2, 3), np.float32)
    fresh = jax.eval_shape(loaded.model.init, jax.random.key(0), X, X[..., 0])
    own = jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), loaded.params)
    assert own == jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), fresh["params"])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"_backbone.h.1.ln_2.bias": None},
            "expected a tensor _backbone.h.1.ln_2.bias, found none",
        ),
        ({"_read_in.weight": None}, "expected a tensor _read_in.weight, found none"),
        (
            {"_read_in.weight": np.zeros(8, np.float32)},
            "expected _read_in.weight to be a matrix, got (8,)",
        ),
        (
            {"_backbone.h.0.mlp.c_fc.weight": np.zeros((32, 8), np.float32)},
            "expected _backbone.h.0.mlp.c_fc.weight of shape (8, 32), got (32, 8)",
        ),
        (
            {"_read_out.bias": np.zeros(2, np.float32)},
            "expected _read_out.bias of shape (1,), got (2,)",
        ),
        (
            {"_read_out.bias": np.zeros(1, np.int32)},
            "expected floating point in _read_out.bias, got int32",
        ),
        (
            {"_probe.weight": np.zeros(1, np.float32)},
            "expected the tensors of a GPT-2 between _read_in and _read_out, got "
            "another tensor _probe.weight",
        ),
        (
            {name: None for name in tensors() if ".h.0." in name},
            "expected a tensor _backbone.h.0.attn.c_proj.bias, found none",
        ),
        (
            {name: None for name in tensors() if ".h." in name},
            "expected tensors of blocks _backbone.h.0, ..., got none of",
        ),
    ],
)
def test_what_is_missing_or_misshapen_is_named(changes, message, tmp_path):
    path = written(tmp_path / "model.safetensors", **changes)
    with raises(f"{path}: {message}") as caught:
        load_garg_checkpoint(path, num_heads=2)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("front", ["module.", "_orig_mod.module."])
def test_what_training_puts_before_every_name_is_passed_over(front, tmp_path):
    wrapped = {front + name: value for name, value in tensors().items()}
    write_safetensors(tmp_path / "a", wrapped)
    found = load_garg_checkpoint(tmp_path / "a", num_heads=2)
    expected = load_garg_checkpoint(FIXTURE, num_heads=2)
    jax.tree.map(np.testing.assert_array_equal, found.params, expected.params)


def test_heads_must_divide_the_width():
    with raises("num_heads: expected a divisor of width 8, got 3"):
        load_garg_checkpoint(FIXTURE, num_heads=3)
    with raises("num_heads: expected a positive integer, got 0"):
        load_garg_checkpoint(FIXTURE, num_heads=0)
    with raises("num_heads: expected a number for width 8, since no array tells it"):
        load_garg_checkpoint(FIXTURE)


def test_other_files_are_refused(tmp_path):
    with raises("gone: expected a file, found none", FileNotFoundError):
        load_garg_checkpoint(tmp_path / "gone")
    with raises("format: expected one of"):
        load_garg_checkpoint(FIXTURE, format="pickle")
    damaged = tmp_path / "model.safetensors"
    damaged.write_bytes(FIXTURE.read_bytes()[:-3])
    with raises(f"{damaged}: expected "):
        load_garg_checkpoint(damaged, num_heads=2)
    pickled = tmp_path / "state.pt"
    pickled.write_bytes(b"anything")
    with raises('pass format="torch" to read it with torch.load(weights_only=True)'):
        load_garg_checkpoint(pickled)


def test_without_torch_its_format_is_refused(monkeypatch):
    importing = builtins.__import__

    def no_torch(name, *args, **kwargs):
        if name == "torch":
            raise ImportError(name)
        return importing(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", no_torch)
    with raises('format="torch" needs PyTorch', ImportError):
        load_garg_checkpoint(FIXTURE, format="torch")


@pytest.fixture
def twins():
    """The module that builds models of transformers."""
    pytest.importorskip("torch", reason="needs torch: uv run --with torch ...")
    pytest.importorskip("transformers", reason="needs transformers")
    from tests.models import make_garg_fixture

    return make_garg_fixture


@pytest.mark.slow
@pytest.mark.parametrize("whole_state", [False, True])
def test_torch_files_of_another_size_predict_what_their_model_predicts(
    twins, whole_state, tmp_path
):
    import torch

    sizes = {"dim": 5, "num_positions": 22, "width": 64, "num_layers": 3}
    model = twins.twin(**sizes, num_heads=2, seed=1)
    for weight in model.parameters():
        weight.data *= 0.3  # wide sums stay near 1
    state = twins.state_dict(model, 22, 3)
    if whole_state:
        adam = torch.optim.Adam(model.parameters())
        training = {"optimizer_state_dict": adam.state_dict(), "train_step": 7}
        state = {"model_state_dict": state, **training}
    torch.save(state, tmp_path / "state.pt")
    rng = np.random.default_rng(2)
    X, y = rng.standard_normal((4, 11, 5)), rng.standard_normal((4, 11))
    loaded = load_garg_checkpoint(tmp_path / "state.pt", num_heads=2, format="torch")
    expected = twins.predictions(model, X, y)
    assert np.ptp(expected) > 0.1
    np.testing.assert_allclose(predicted(loaded, X, y), expected, atol=TOLERANCE)


@pytest.mark.slow
def test_torch_files_that_hold_code_or_no_tensors_are_refused(twins, tmp_path):
    import torch

    path = tmp_path / "model.pt"
    for value in (print, [1, 2], {"a": 3}):
        torch.save(value, path)
        with raises(f"{path}: expected a state dict") as caught:
            load_garg_checkpoint(path, format="torch")
        assert "\n" not in str(caught.value)
