"""A model on several devices beside the same on one: what it prints is JSON."""

import dataclasses
import json
import sys

import jax
import numpy as np

from icltheory.bridge import (
    Evaluator,
    algorithm1,
    choose_layer,
    condition_numbers,
    load_checkpoint,
    prune_model,
    save_checkpoint,
)
from icltheory.bridge.sharding import shard_model
from icltheory.training import initialize_distributed
from tests.bridge.evaluation_tasks import LETTERS, choice, classification

RATES = (0, 0.5, 0.75)


def answers(model):
    """Logits, scores at several rates, and what Algorithm 1 chooses and measures."""
    model = model.replace(tokenizer=LETTERS)
    task = classification(8, longest=1)
    words = Evaluator(model, choice(4))
    words = words.scores("validation", [f"0:W_V:{rate}" for rate in RATES])
    both = dataclasses.replace(task, test=task.validation[4:])
    both = dataclasses.replace(both, validation=task.validation[:4])
    layer = choose_layer(condition_numbers(model), "attn", 1, "mean")
    found = algorithm1(Evaluator(model, both), layer, "attn", RATES)
    return {
        "scores": words.tolist(),
        "chosen": [layer.deepest, found.rate, found.test_before, found.test_after],
        "validation": list(found.tried.values()),
    }


def logits(model):
    """Logits of a few tokens, of the model and with a module clipped."""
    ids = np.arange(24).reshape(2, 12)
    models = (model, prune_model(model, "0:attn:0.5"))
    return [np.asarray(one.logits(ids), float).tolist() for one in models]


def bytes_of(params):
    """Bytes that the first device holds of the parameters, and those of all of them."""
    leaves = jax.tree.leaves(params)
    own = sum(leaf.addressable_shards[0].data.nbytes for leaf in leaves)
    return own, sum(leaf.nbytes for leaf in leaves)


def one(folder):
    """Eight devices of this process: in a row, and in two groups of four."""
    alone, devices = load_checkpoint(folder), np.array(jax.devices())
    spread = load_checkpoint(folder, devices=devices)
    own, everything = bytes_of(spread.params)
    report = {"devices": devices.size, "share": own / everything}
    groups = shard_model(alone, devices.reshape(2, 4))
    for name, model in (("one", alone), ("eight", spread), ("groups", groups)):
        report[name] = answers(model) | {"logits": logits(model)}
    return report


def two(folder, port, rank):
    """Two processes of four devices each."""
    initialize_distributed(f"127.0.0.1:{port}", 2, int(rank))
    spread = load_checkpoint(folder, devices=jax.devices())
    report = {"devices": jax.device_count(), "processes": jax.process_count()}
    save_checkpoint(spread, f"{folder}-again")
    clipped = prune_model(spread, "0:mlp:0.75")
    save_checkpoint(clipped, f"{folder}-factors", factorised=[(0, "mlp")])
    return report | answers(spread)


if __name__ == "__main__":
    name, *args = sys.argv[1:]
    print(json.dumps({"one": one, "two": two}[name](*args)), flush=True)
