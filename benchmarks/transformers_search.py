"""Evaluation and search compared with batches in transformers, compilation included.

Command
    uv run --group bench python -m benchmarks.transformers_search

A random LLaMA of 8 layers in float32 and 1,000 questions behind a prefix of 180 tokens.
transformers runs sorted batches of 32 whole prompts, logits of the last token only,
which is what its users write; it keeps no prefix. Both sides have the same weights, and
their scores have to be equal but for rounding. Our first call in a process compiles:
that is the time that stands here, and the note has a later one. About ten minutes;
within a budget transformers answers some of the questions and is scaled up.
"""

import functools
import importlib.util
import math
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks import _alone, _measure
from benchmarks._suite import BenchmarkRow, Budget, Case, Skip, each
from benchmarks.prune_search import LABELS, RATES, Words
from icltheory.bridge import (
    Decoder,
    LanguageModel,
    clip_module,
    evaluate,
    evaluate_rates,
    save_checkpoint,
)
from icltheory.bridge.evaluation import Evaluation, Prompts, tokenize
from icltheory.bridge.families import read_architecture
from icltheory.bridge.tasks import Example, LanguageTask, PromptTemplate

CONFIG = {
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
}
QUESTIONS, BATCH = 1000, 32
# Number of questions for transformers when time is short.
SOME = 4 * BATCH
LAYERS = (7, 4)


def task() -> LanguageTask:
    """Builds a task of ten demonstrations and questions, with lengths as in SST-2."""
    rng = np.random.default_rng(0)
    lengths = np.clip(rng.lognormal(2.9, 0.5, QUESTIONS).astype(int), 3, 60)

    def text(length: int) -> str:
        return " ".join(map(str, rng.integers(0, CONFIG["vocab_size"] - 2, length)))

    rows = tuple(
        Example({"text": text(length)}, i % 2, i)
        for i, length in enumerate([*lengths, *[15] * 10])
    )
    return LanguageTask(
        name="words",
        profile="paper",
        kind="classification",
        labels=LABELS,
        demonstrations=rows[QUESTIONS:],
        validation=rows[:QUESTIONS],
        test=(),
        template=PromptTemplate("{text} 7 {label} 8\n", "{text} 7", LABELS),
    )


def model() -> LanguageModel:
    """Builds the language model with random weights."""
    decoder = Decoder(read_architecture(CONFIG))
    params = decoder.init(jax.random.key(0), jnp.float32)
    words = Words(CONFIG["vocab_size"])
    return LanguageModel(decoder, params, words, source="random", config=CONFIG)


class Torch:
    """Evaluates the same models in transformers, by sorted batches."""

    def __init__(self, prompts: Prompts):
        if not all(importlib.util.find_spec(n) for n in ("torch", "transformers")):
            raise Skip("torch and transformers are not installed (group bench)")
        import torch
        import transformers

        transformers.utils.logging.disable_progress_bar()
        self.torch, self.transformers = torch, transformers
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        self.rows = [(*prompts.prefix, *row) for row in prompts.rows]
        self.labels = list(prompts.label_ids)
        self.order = np.argsort([len(row) for row in self.rows], kind="stable")

    def load(self, model: LanguageModel) -> Any:
        """Loads a model of this package as a transformers model."""
        with tempfile.TemporaryDirectory() as folder:
            save_checkpoint(model, folder)
            load = self.transformers.AutoModelForCausalLM.from_pretrained
            return load(folder, dtype=self.torch.float32).to(self.device).eval()

    def scores(self, model: Any, count: int) -> np.ndarray:
        """Returns the logits of the labels after prompts spread over all lengths."""
        chosen = self.chosen(count)
        found = []
        with self.torch.inference_mode():
            for start in range(0, count, BATCH):
                rows = [self.rows[i] for i in chosen[start : start + BATCH]]
                found.append(self._batch(model, rows))
        return np.concatenate(found)

    def chosen(self, count: int) -> np.ndarray:
        """Returns the questions to answer: all, or batches spread over lengths."""
        batches = [self.order[i : i + BATCH] for i in range(0, len(self.order), BATCH)]
        places = np.linspace(0, len(batches) - 2, math.ceil(count / BATCH)).astype(int)
        kept = batches if count == len(self.order) else [batches[p] for p in places]
        return np.concatenate(kept)

    def _batch(self, model: Any, rows: Sequence[Sequence[int]]) -> np.ndarray:
        length = max(map(len, rows))
        ids = np.zeros((len(rows), length), np.int64)
        mask = np.zeros_like(ids)
        for number, row in enumerate(rows):
            ids[number, length - len(row) :] = row
            mask[number, length - len(row) :] = 1
        given = {"input_ids": ids, "attention_mask": mask}
        tensors = {
            name: self.torch.from_numpy(x).to(self.device) for name, x in given.items()
        }
        logits = model(**tensors, logits_to_keep=1, use_cache=False).logits
        return logits[:, -1, self.labels].float().cpu().numpy()


def measure(budget: Budget) -> Iterator[BenchmarkRow]:
    """Measures one evaluation, and searches over eight rates at two layers."""
    group = (
        f"Beside batches in transformers, {QUESTIONS:,} questions, LLaMA of "
        f"{CONFIG['num_hidden_layers']} layers of width {CONFIG['hidden_size']}"
    )
    whole = math.isinf(budget.seconds) and not budget.quick
    count = QUESTIONS if whole else SOME
    cases = [Case("one evaluation", 45, functools.partial(evaluation_row, count))]
    cases += [
        Case(
            f"search over {len(RATES)} rates, layer {layer}, mlp",
            60,
            functools.partial(search_row, count, layer),
        )
        for layer in LAYERS
    ]
    yield from each(group, budget, cases)


def evaluation_row(count: int) -> BenchmarkRow:
    """Measures the evaluation of the unpruned model."""
    ours, questions = model(), task()

    def answers() -> tuple[Evaluation, ...]:
        return (evaluate(ours, questions, batch_size=BATCH),)

    return _row(count, answers, lambda: [ours])


def search_row(count: int, layer: int) -> BenchmarkRow:
    """Measures a search over all rates of one layer's MLP, decompositions included."""
    ours, questions = model(), task()

    def answers() -> tuple[Evaluation, ...]:
        return evaluate_rates(ours, questions, layer, "mlp", RATES, batch_size=BATCH)

    def pruned() -> list[LanguageModel]:
        return [clip_module(ours, layer, "mlp", rate) for rate in RATES]

    return _row(count, answers, pruned)


def _row(
    count: int,
    answers: Callable[[], tuple[Evaluation, ...]],
    models: Callable[[], list[LanguageModel]],
) -> BenchmarkRow:
    """Builds a row from our first and later times and the time of transformers."""
    prompts = tokenize(model(), task())
    other = Torch(prompts)
    found = [other.load(one) for one in models()]
    other.scores(found[0], BATCH)
    jax.clear_caches()
    # The evaluations are NumPy arrays, so they have already waited for the device.
    used = [time.process_time()]
    ours, first = _measure.once(answers)
    used.append(time.process_time())
    _, later = _measure.once(answers)
    used.append(time.process_time())
    theirs, seconds = _measure.once(
        lambda: np.stack([other.scores(one, count) for one in found])
    )
    used.append(time.process_time())
    spent = np.diff(used) * [1, 1, QUESTIONS / count]
    scores = np.stack([each.scores for each in ours])[:, other.chosen(count)]
    wrong = (scores.argmax(axis=2) != theirs.argmax(axis=2)).sum()
    seconds, whole = seconds * QUESTIONS / count, count == QUESTIONS
    note = "" if whole else f"transformers timed on {count} questions, scaled"
    return BenchmarkRow(
        ours_s=first,
        alternative=f"transformers, batches of {BATCH}",
        alternative_s=seconds,
        error=_measure.disagreement(scores, theirs),
        tolerance=1e-4,
        note=note,
        facts={
            "later call s": later,
            "ratio of later calls x": seconds / later,
            "answers that differ:": int(wrong),
            "processor, first s": spent[0],
            "processor, later s": spent[1],
            "processor, transformers s": spent[2],
        },
    )


if __name__ == "__main__":
    _alone.main(measure)
