"""A model that several devices share answers as it does on one."""

import jax
import numpy as np
import pytest

from icltheory.bridge import load_checkpoint, prune_model, save_checkpoint
from icltheory.bridge.cost import model_cost
from icltheory.bridge.families import read_architecture
from icltheory.bridge.sharding import Placement, shard_model
from tests.bridge.tiny import random_model
from tests.several_devices import finish, finish_pair, free_port, launch

PROGRAM = "tests.bridge.sharded_run"
CONFIG = {
    "model_type": "llama",
    "vocab_size": 129,  # which eight devices do not divide
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "max_position_embeddings": 160,
}


@pytest.fixture(scope="module")
def reports(tmp_path_factory):
    """Reports of one process of eight devices and of two of four; the folder."""
    folder = save_checkpoint(
        random_model(CONFIG), tmp_path_factory.mktemp("model") / "model"
    )
    port = free_port()
    pair = (launch(PROGRAM, 4, "two", folder, port, rank) for rank in (0, 1))
    (code, first, err), (_, second, _) = finish_pair(*pair)
    assert code == 0, err
    code, alone, err = finish(launch(PROGRAM, 8, "one", folder))
    assert code == 0, err
    return alone, first, second, folder


# Sums of float32 in another order, through two layers and a norm.
CLOSE = {"rtol": 1e-4, "atol": 1e-4}


@pytest.mark.slow
def test_a_model_on_several_devices_answers_as_on_one(reports):
    """On eight in a row, on two groups of four, and in two processes of four each."""
    (alone, *pair, _), expected = reports, reports[0]["one"]
    assert alone["devices"] == 8
    assert [(r["devices"], r["processes"]) for r in pair] == [(8, 2)] * 2
    np.testing.assert_allclose(alone["eight"]["logits"], expected["logits"], **CLOSE)
    np.testing.assert_allclose(alone["groups"]["logits"], expected["logits"], **CLOSE)
    for found in (alone["eight"], alone["groups"], *pair):
        np.testing.assert_allclose(found["scores"], expected["scores"], **CLOSE)
        assert found["chosen"] == expected["chosen"]
        assert found["validation"] == expected["validation"]


@pytest.mark.slow
def test_two_processes_write_the_checkpoint_of_one(reports):
    folder = reports[-1]
    again = folder.with_name("model-again")
    for name in ("model.safetensors", "config.json"):
        assert (again / name).read_bytes() == (folder / name).read_bytes()
    factors = load_checkpoint(folder.with_name("model-factors"))
    clipped = prune_model(load_checkpoint(folder), "0:mlp:0.75")
    for own, other in zip(
        jax.tree.leaves(factors.params), jax.tree.leaves(clipped.params), strict=True
    ):
        np.testing.assert_allclose(own, other, rtol=1e-5, atol=1e-6)
    left = {path.name for path in folder.parent.iterdir()}
    assert left == {"model", "model-again", "model-factors"}


@pytest.mark.slow
def test_each_device_holds_an_eighth(reports):
    assert reports[0]["share"] < 1.1 / 8  # norms are whole everywhere
    arch = read_architecture(CONFIG)
    predicted = model_cost(arch, devices=8)
    predicted = predicted.device_bytes / predicted.num_bytes
    assert reports[0]["share"] == pytest.approx(predicted, rel=1e-12)


def test_on_one_device_it_is_the_same_model():
    model = random_model(CONFIG)
    spread = shard_model(model, jax.devices()[:1])
    ids = np.arange(12).reshape(2, 6)
    np.testing.assert_array_equal(spread.logits(ids), model.logits(ids))


def stand_in(parts):
    """A placement over so many devices that nothing is put on."""
    placement = Placement(jax.devices()[:1])
    again = np.full((1, parts), jax.devices()[0])
    placement.mesh = jax.sharding.Mesh(again, ("batch", "weights"))
    return placement


EXPERT = ("layers", 0, "mlp", "expert_3")


@pytest.mark.parametrize(
    ("path", "shape", "spec"),
    [
        (("layers", 0, "attn", "W_Q", "weight"), (32, 16), ("weights", None)),
        (("layers", 0, "attn", "W_O", "weight"), (16, 32), (None, "weights")),
        (("layers", 0, "attn", "W_K", "bias"), (32,), (None,)),
        ((*EXPERT, "W_out", "weight"), (16, 8), (None, "weights")),
        (("layers", 0, "mlp", "router", "weight"), (8, 16), (None, None)),
        (("layers", 0, "attn", "W_V", "weight"), (3, 5), (None, None)),
        (("embed", "tokens"), (129, 32), (None, "weights")),
        (("head", "weight"), (128, 32), ("weights", None)),
        (("final_norm", "scale"), (32,), (None,)),
    ],
)
def test_matrices_are_split_by_what_passes_between_them(path, shape, spec):
    assert tuple(stand_in(4).of(path, shape).spec) == spec


@pytest.mark.parametrize(
    ("devices", "message"),
    [
        ([], "devices: expected a sequence, or an array of two axes, got shape"),
        ([0, 0], "devices: expected distinct devices, got cpu:0 twice"),
    ],
)
def test_devices_that_cannot_share_are_refused(devices, message):
    with pytest.raises(ValueError, match=message):
        Placement([jax.devices()[number] for number in devices])
