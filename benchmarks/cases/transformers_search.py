"""Loading, evaluation and search, and the same in transformers, compilation included.

A random LLaMA of 8 layers in float32 with 1,000 questions behind a prefix of 180
tokens, and one of 1.1 billion weights in bfloat16 (the architecture of TinyLlama: 22
layers of width 2,048, in three shards) with 32 questions. transformers runs sorted
batches of 32 whole prompts, logits of the last token only, which is what its users
write; it keeps no prefix. Both sides have the same weights and decompose the matrices
that they prune; their scores have to be equal but for rounding. Our time is that of the
first call, which compiles; a later one is stated. Twenty minutes, 8 GB.
"""

import functools
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks.cases.prune_search import Words, task_of
from benchmarks.suite import Pair, case, disagreement, once
from benchmarks.torch_search import BATCH, RATES, Torch
from icltheory.bridge import (
    Decoder,
    Evaluator,
    LanguageModel,
    evaluate,
    load_checkpoint,
    save_checkpoint,
)
from icltheory.bridge.evaluation import tokenize
from icltheory.bridge.families import read_architecture
from icltheory.bridge.tasks import LanguageTask

SMALL = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 8192,
    "hidden_size": 256,
    "intermediate_size": 688,
    "num_hidden_layers": 8,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "max_position_embeddings": 1024,
    "rms_norm_eps": 1e-5,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
    "rope_theta": 10000.0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "torch_dtype": "float32",
}
LARGE = SMALL | {
    "vocab_size": 32000,
    "hidden_size": 2048,
    "intermediate_size": 5632,
    "num_hidden_layers": 22,
    "num_attention_heads": 32,
    "max_position_embeddings": 2048,
    "torch_dtype": "bfloat16",
}
# Relative tolerance of scores; in bfloat16 several roundings in each of 22 layers.
TOLERANCES = {"float32": 1e-4, "bfloat16": 5e-2}


def model_of(config: dict[str, Any]) -> LanguageModel:
    """Builds a language model with random weights."""
    decoder = Decoder(read_architecture(config))
    params = decoder.init(jax.random.key(0), jnp.dtype(config["torch_dtype"]))
    words = Words(config["vocab_size"])
    return LanguageModel(decoder, params, words, source="random", config=config)


def questions_of(config: dict[str, Any], questions: int, shots: int) -> LanguageTask:
    """Builds a task whose questions are as long as those of SST-2."""
    rng = np.random.default_rng(0)
    lengths = np.clip(rng.lognormal(2.9, 0.5, questions).astype(int), 3, 60)
    return task_of(rng, lengths, [15] * shots, config["vocab_size"])


@pytest.mark.long
@case("Beside transformers", {"load 1.1 billion weights": (LARGE,)})
def bench_load(config: dict[str, Any]) -> Pair:
    folder = tempfile.TemporaryDirectory()
    save_checkpoint(model_of(config), f"{folder.name}/model", shard_bytes=800 * 10**6)
    return Pair(
        lambda: load_checkpoint(f"{folder.name}/model").params,
        lambda: Torch(f"{folder.name}/model"),
        "transformers, dtype auto",
        error=None,
        precision=config["torch_dtype"],
        note="transformers maps the file and reads it at the first use",
    )


@pytest.mark.long
@case(
    "Beside batches in transformers",
    {
        "one evaluation": (SMALL, 1000, 10, None),
        "search over 8 rates, layer 7, mlp": (SMALL, 1000, 10, 7),
        "search over 8 rates, layer 4, mlp": (SMALL, 1000, 10, 4),
        "1.1 billion weights, 8 rates, layer 20, mlp": (LARGE, 32, 4, 20),
    },
)
def bench_transformers(
    config: dict[str, Any], questions: int, shots: int, layer: int | None
) -> Pair:
    """Compares one evaluation, or the search over all rates of a layer's MLP."""
    task = questions_of(config, questions, shots)
    ours = model_of(config)
    prompts = tokenize(ours, task)
    rows = [(*prompts.prefix, *row) for row in prompts.rows]
    with tempfile.TemporaryDirectory() as folder:
        other = Torch(str(save_checkpoint(ours, f"{folder}/model")))
        other.searched(rows[:BATCH], prompts.label_ids, None)

    def answers() -> Sequence[Any]:
        if layer is None:
            return (evaluate(ours, task, batch_size=BATCH),)
        pruned = [f"{layer}:mlp:{rate}" for rate in RATES]
        return Evaluator(ours, task, batch_size=BATCH).evaluate("validation", pruned)

    facts: dict[str, float] = {}
    jax.clear_caches()
    spent(facts, "first", answers)
    spent(facts, "later", answers)

    def error(got, found):
        scores = np.stack([each.scores for each in got])
        wrong = scores.argmax(axis=2) != found.argmax(axis=2)
        facts["answers that differ:"] = int(wrong.sum())
        return disagreement(scores, found)

    def theirs():
        searched = functools.partial(other.searched, rows, prompts.label_ids, layer)
        return spent(facts, "transformers", searched)

    return Pair(
        answers,
        theirs,
        f"transformers, batches of {BATCH}",
        error=error,
        tolerance=TOLERANCES[config["torch_dtype"]],
        precision=config["torch_dtype"],
        facts=facts,
        cold=True,
    )


def spent(facts: dict[str, float], name: str, call: Callable[[], Any]) -> Any:
    """Calls a function and keeps its time and that of all processors."""
    used = time.process_time()
    result, facts[f"{name} call s"] = once(call)
    facts[f"processor, {name} s"] = time.process_time() - used
    return result
