"""Runs one side of :mod:`benchmarks.large_model` in a process of its own.

``python -m benchmarks._large_sides SIDE FOLDER`` reads the checkpoint ``FOLDER/model``
and ``FOLDER/task.json`` and writes ``FOLDER/SIDE.json``: seconds, memory and scores.
What a side needs is imported by it alone, so that its memory is its own.
"""

import json
import math
import sys
import time
from collections.abc import Callable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

LABELS = ("pos", "neg")
DEMONSTRATION, QUESTION = "{text} label: {label}\n", "{text} label:"
MODULE = "mlp"
# Number of questions evaluated in float32, to measure the rounding error of bfloat16.
EXACT = 8


def memory() -> dict[str, float]:
    """Returns this process's peak, current and file-mapped memory in GiB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    values = dict(line.split(":", 1) for line in lines)
    names = {"peak": "VmHWM", "now": "VmRSS", "files": "RssFile"}
    return {name: int(values[key].split()[0]) / 2**20 for name, key in names.items()}


class Record:
    """Records the wall time, processor time and memory of each phase of a run."""

    def __init__(self):
        names = ("memory", "seconds", "processor seconds")
        self.found: dict[str, Any] = {name: {} for name in names}

    def phase(self, name: str, work: Callable[[], Any]) -> Any:
        """Runs one phase, records its times and memory, and returns its result."""
        start, used = time.perf_counter(), time.process_time()
        result = work()
        self.found["seconds"][name] = time.perf_counter() - start
        self.found["processor seconds"][name] = time.process_time() - used
        self.found["memory"][name] = memory()
        return result


def icltheory(folder: Path, task: dict[str, Any]) -> dict[str, Any]:
    """Loads the model and runs Algorithm 1 twice; only the first run compiles."""
    import jax

    from icltheory.bridge import algorithm1, load_checkpoint
    from icltheory.bridge.answer_cache import AnswerCache, facts_of
    from icltheory.bridge.tasks import Example, LanguageTask, PromptTemplate

    def examples(split: str) -> tuple[Example, ...]:
        rows = enumerate(task[split])
        return tuple(Example({"text": text}, label, i) for i, (text, label) in rows)

    questions = LanguageTask(
        name="words",
        profile="paper",
        kind="classification",
        labels=LABELS,
        demonstrations=examples("demonstrations"),
        validation=examples("validation"),
        test=examples("test"),
        template=PromptTemplate(DEMONSTRATION, QUESTION, LABELS),
    )
    record, layer, rates = Record(), task["layer"], task["rates"]
    record.phase("import", jax.devices)

    def load() -> Any:
        model = load_checkpoint(folder)
        jax.block_until_ready(model.params)
        return model

    model = record.phase("load", load)

    def search() -> tuple[Any, AnswerCache]:
        answers = AnswerCache(facts_of(questions), method="svd")
        given = {"layer": layer, "records": answers, "batch_size": task["batch"]}
        return algorithm1(model, questions, MODULE, rates, 1, "max", **given), answers

    result, answers = record.phase("search", search)
    record.phase("later search", search)
    place = (layer, MODULE)
    tested = (0.0, result.rate)
    return record.found | {
        "rate": result.rate,
        "test accuracy": [result.test_before, result.test_after],
        "validation": answers.scores("validation", *place, rates).tolist(),
        "test": answers.scores("test", *place, tested).tolist(),
    }


class Transformers:
    """A transformers model that scores the labels in batches sorted by length."""

    def __init__(self, folder: Path, task: dict[str, Any], dtype: str):
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer
        from transformers.utils import logging

        logging.disable_progress_bar()
        self.torch, self.task = torch, task
        read: Any = AutoTokenizer.from_pretrained
        self.tokenizer = read(folder)
        load = AutoModelForCausalLM.from_pretrained
        self.model = load(folder, dtype=dtype).eval()
        shown = [
            DEMONSTRATION.format(text=text, label=LABELS[label])
            for text, label in task["demonstrations"]
        ]
        self.prefix = "".join(shown)
        asked = self.prompts("validation")[0]
        self.labels = [self.tokenizer(f"{asked} {w}").input_ids[-1] for w in LABELS]

    def prompts(self, split: str) -> list[str]:
        """Returns the full prompts of a data split."""
        return [
            self.prefix + QUESTION.format(text=text) for text, _ in self.task[split]
        ]

    def scores(self, split: str, count: int | None = None) -> list[list[float]]:
        """Returns the logits of the labels after each prompt of a data split."""
        rows = [self.tokenizer(p).input_ids for p in self.prompts(split)[:count]]
        order = sorted(range(len(rows)), key=lambda i: len(rows[i]))
        found: dict[int, list[float]] = {}
        for start in range(0, len(order), self.task["batch"]):
            numbers = order[start : start + self.task["batch"]]
            logits = self._batch([rows[i] for i in numbers])
            found.update(zip(numbers, logits, strict=True))
        return [found[i] for i in range(len(rows))]

    def _batch(self, rows: Sequence[list[int]]) -> list[list[float]]:
        longest = max(map(len, rows))
        ids = [[0] * (longest - len(row)) + row for row in rows]
        mask = [[0] * (longest - len(row)) + [1] * len(row) for row in rows]
        with self.torch.inference_mode():
            logits = self.model(
                input_ids=self.torch.tensor(ids),
                attention_mask=self.torch.tensor(mask),
                logits_to_keep=1,
                use_cache=False,
            ).logits
        return logits[:, -1, self.labels].float().tolist()

    def matrices(self) -> list[Any]:
        """Returns the weight matrices of the module that is pruned."""
        mlp = self.model.model.layers[self.task["layer"]].mlp
        return [mlp.gate_proj.weight, mlp.up_proj.weight, mlp.down_proj.weight]


def transformers(folder: Path, task: dict[str, Any]) -> dict[str, Any]:
    """Runs the same search in transformers, with one decomposition for all rates."""
    import torch
    import transformers as imported

    record = Record()
    record.phase("import", lambda: imported.__version__)
    model = record.phase("load", lambda: Transformers(folder, task, "auto"))

    def search() -> dict[str, Any]:
        with torch.inference_mode():
            weights = model.matrices()
            kept = [W.clone() for W in weights]
            parts = [torch.linalg.svd(W.float(), full_matrices=False) for W in kept]

        def clip(rate: float) -> None:
            for W, old, (U, s, Vt) in zip(weights, kept, parts, strict=True):
                rank = math.floor((1 - Fraction(str(rate))) * len(s))
                with torch.inference_mode():
                    W.copy_(old if rate == 0 else (U[:, :rank] * s[:rank]) @ Vt[:rank])

        right = [label for _, label in task["validation"]]
        found, accuracy = [], {}
        for rate in task["rates"]:
            clip(rate)
            found.append(model.scores("validation"))
            pairs = zip(found[-1], right, strict=True)
            accuracy[rate] = sum(s.index(max(s)) == label for s, label in pairs)
        rate = max(task["rates"], key=lambda r: (accuracy[r], -r))
        tested = []
        for each in (0.0, rate):
            clip(each)
            tested.append(model.scores("test"))
        clip(0.0)
        return {"rate": rate, "validation": found, "test": tested}

    return record.found | record.phase("search", search)


def float32(folder: Path, task: dict[str, Any]) -> dict[str, Any]:
    """Returns the float32 scores of the unpruned model on a few questions."""
    model = Transformers(folder, task, "float32")
    return {"validation": [model.scores("validation", EXACT)]}


SIDES = {"icltheory": icltheory, "transformers": transformers, "float32": float32}


if __name__ == "__main__":
    side, where = sys.argv[1], Path(sys.argv[2])
    given = json.loads((where / "task.json").read_text())
    answer = SIDES[side](where / "model", given)
    (where / f"{side}.json").write_text(json.dumps(answer))
