"""Counts from an architecture against weights that exist and known totals."""

import dataclasses
import json
import shutil

import jax
import numpy as np
import pytest

from experiments.real_model.published import CONFIGS
from icltheory.bridge import cost as cost_module
from icltheory.bridge import load_checkpoint
from icltheory.bridge.cost import fits, model_cost
from icltheory.bridge.families import read_architecture
from icltheory.layered import get_matrix
from tests.bridge.stored import FIXTURES
from tests.bridge.tiny import CONFIGS as TINY
from tests.bridge.tiny import model_of
from tests.raising import raises


@pytest.mark.parametrize("family", TINY)
def test_counts_are_those_of_weights(family):
    model = model_of(family)
    cost = model_cost(model.arch, "float32")
    leaves = jax.tree.leaves(model.params)
    assert cost.parameters == sum(leaf.size for leaf in leaves)
    assert cost.num_bytes == 4 * cost.parameters
    named = {s.name: get_matrix(model.params, s).shape for s in model.matrices(1)}
    router = {"router": cost.matrices["router"]} if model.arch.experts else {}
    assert cost.matrices == named | router


def test_operations_are_those_of_a_loop_over_the_products():
    model = model_of("llama")
    a, context = model.arch, 7
    shapes = model_cost(a).matrices.values()
    total = sum(2 for shape in shapes for _ in np.ndindex(*shape))
    # Scores and mixing: a product and a sum each, for every head and coordinate.
    total += 2 * 2 * context * a.num_heads * a.head_dim
    assert model_cost(a, context=context).layer_flops == total


def test_the_published_models_have_their_known_sizes():
    """6,050,882,784 and 6,738,415,616 parameters, as their model cards say."""
    sizes = {"gptj": 6_050_882_784, "llama2": 6_738_415_616}
    for name, known in sizes.items():
        cost = model_cost(read_architecture(CONFIGS[name]))
        assert cost.parameters == known
        assert cost.num_bytes == 2 * known


# Biases, a tied head, joined matrices, experts, a table of positions.
LAYOUTS = ("gptj", "gpt_neox", "llama_tied", "mixtral", "opt", "phi3")


@pytest.mark.parametrize("name", LAYOUTS)
def test_predicted_bytes_of_a_checkpoint_are_those_that_are_loaded(name):
    folder = FIXTURES / name
    params = load_checkpoint(folder).params
    cost = model_cost(folder)
    leaves = jax.tree.leaves(params)
    assert cost.num_bytes == cost.device_bytes == sum(leaf.nbytes for leaf in leaves)
    assert cost.parameters == sum(leaf.size for leaf in leaves)
    assert {cost.dtype} == {leaf.dtype.name for leaf in leaves}
    half = model_cost(folder, "bfloat16")
    assert half.num_bytes == 2 * cost.parameters
    assert fits(cost.device_bytes)


def test_bytes_on_a_device_are_those_of_its_part():
    """The loop splits one side where the number of devices divides it."""
    model = model_of("llama")
    for devices in (2, 8, 7):
        total = 0
        for path, leaf in jax.tree_util.tree_leaves_with_path(model.params):
            keys = [getattr(key, "key", getattr(key, "idx", None)) for key in path]
            split = keys[0] in ("embed", "head") or str(keys[-2]).startswith("W_")
            divided = any(side % devices == 0 for side in leaf.shape)
            share = devices if leaf.ndim == 2 and split and divided else 1
            total += leaf.size // share
        cost = model_cost(model.arch, "float32", devices=devices)
        assert cost.device_bytes == 4 * total
    other = dataclasses.replace(model.arch, family="foo")
    for arch, how, message in (
        (model.arch, {"context": -1}, "context: "),
        (model.arch, {"devices": 0}, "devices: "),
        (model.arch, {"dtype": "foo"}, "dtype: expected one of "),
        (other, {}, "arch.family: expected one of "),
    ):
        with raises(message):
            model_cost(arch, **how)


def test_what_does_not_fit_or_is_missing_is_said(tmp_path, monkeypatch):
    folder = FIXTURES / "llama"
    own = model_cost(folder, devices=2).device_bytes
    needed = 2 * own if jax.default_backend() == "cpu" else own
    for free, enough in ((needed, True), (needed - 1, False), (None, None)):
        monkeypatch.setattr(cost_module, "free_memory", lambda free=free: free)
        assert fits(own, 2) is enough
    (tmp_path / "config.json").write_bytes((folder / "config.json").read_bytes())
    with pytest.raises(FileNotFoundError, match="expected model.safetensors or"):
        model_cost(tmp_path)
    config = json.loads((folder / "config.json").read_text())
    config["num_hidden_layers"] += 1
    (tmp_path / "config.json").write_text(json.dumps(config))
    shutil.copy(folder / "model.safetensors", tmp_path)
    with pytest.raises(ValueError, match="expected tensor model.layers"):
        model_cost(tmp_path)


def test_no_weight_is_read(monkeypatch):
    def refuse(*args):
        raise AssertionError(args)

    monkeypatch.setattr(np, "frombuffer", refuse)
    assert model_cost(FIXTURES / "llama", devices=4).device_bytes > 0
