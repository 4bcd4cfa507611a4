"""Loads and prunes a LLaMA of 1.1 billion weights in bfloat16: time and memory.

Command
    uv run --group bench python -m benchmarks.large_model

The architecture is that of TinyLlama-1.1B (22 layers of width 2,048, 32 heads on 4 of
keys and values), the weights are random, in three shards of the Hugging Face layout
with a tokenizer made here. This library and transformers load and search it in
processes of their own, one after the other. Their scores have to agree within what
bfloat16 rounds in 22 layers; how far each is from float32 is shown too. The files are
read once before, so that both sides find them in the system's cache. Needs Linux, 3 GB
of disk and 7 GB of memory; about ten minutes on two cores, of which transformers takes
most.
"""

import functools
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import _alone, _measure
from benchmarks._large_sides import EXACT, LABELS
from benchmarks._suite import BenchmarkRow, Budget, Case, Skip, each
from benchmarks.prune_search import RATES

CHANGES = {
    "hidden_size": 2048,
    "intermediate_size": 5632,
    "max_position_embeddings": 2048,
    "num_attention_heads": 32,
    "num_hidden_layers": 22,
    "num_key_value_heads": 4,
    "torch_dtype": "bfloat16",
    "vocab_size": 32000,
}
LAYER, BATCH = 20, 32
SIZES = {"demonstrations": 4, "validation": 32, "test": 16}
# Relative tolerance of scores: several roundings to 8 bits in each of 22 layers.
TOLERANCE = 5e-2
GIB = 2**30


def task() -> dict[str, Any]:
    """Builds a task of labelled texts of random words, the same in every run."""
    rng = np.random.default_rng(0)
    parts = [a + b for a in "bdfgklmnprst" for b in "aeiou"]
    words = ["".join(rng.choice(parts, rng.integers(1, 4))) for _ in range(2000)]

    def row(number: int) -> tuple[str, int]:
        count = int(np.clip(rng.lognormal(2.3, 0.4), 3, 30))
        return " ".join(rng.choice(words, count)), number % len(LABELS)

    rows = {split: [row(i) for i in range(size)] for split, size in SIZES.items()}
    return {"layer": LAYER, "rates": list(RATES), "batch": BATCH} | rows


def write(folder: Path) -> None:
    """Writes ``FOLDER/task.json`` and the checkpoint ``FOLDER/model``."""
    from tests.experiments.true_checkpoints import write_true_checkpoint

    made = task()
    (folder / "task.json").write_text(json.dumps(made))
    texts = [f" {text} label:\n" for split in SIZES for text, _ in made[split]]
    write_true_checkpoint("llama2", folder / "model", texts, **CHANGES)


def side(name: str, folder: Path) -> dict[str, Any]:
    """Runs one side in a process of its own and returns its results."""
    for path in (folder / "model").glob("*.safetensors"):
        with path.open("rb", buffering=0) as file:
            while file.read(2**24):
                pass
    command = [sys.executable, "-m", "benchmarks._large_sides", name, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise RuntimeError(f"{name}: exit status {done.returncode}: {last}")
    return json.loads((folder / f"{name}.json").read_text())


def measure(budget: Budget) -> Iterator[BenchmarkRow]:
    """Measures loading and one search, here and with transformers."""
    group = (
        "A random LLaMA of 1.1 billion weights in bfloat16: 22 layers of width 2,048; "
        "{demonstrations} demonstrations, {validation} questions for validation, "
        "{test} for the test"
    ).format(**SIZES)
    yield from each(group, budget, [Case("load and search", 900, rows)])


def rows() -> list[BenchmarkRow]:
    """Returns one row for loading and one for the search."""
    if not Path("/proc/self/status").exists():
        raise Skip("peak memory is read from /proc, which only Linux has")
    _needed()
    with tempfile.TemporaryDirectory() as folder:
        writer = [sys.executable, "-m", "benchmarks.large_model", "--write", folder]
        subprocess.run(writer, check=True)
        size = sum(f.stat().st_size for f in Path(folder).glob("model/*.safetensors"))
        found = functools.partial(side, folder=Path(folder))
        ours, theirs, exact = map(found, ("icltheory", "transformers", "float32"))
    return [_load_row(ours, theirs, size), _search_row(ours, theirs, exact)]


def _needed() -> None:
    import importlib.util

    missing = [n for n in ("torch", "transformers") if not importlib.util.find_spec(n)]
    if missing:
        raise Skip(f"{' and '.join(missing)} not installed (group bench)")


def _facts(ours: Any, theirs: Any, phase: str) -> dict[str, float]:
    """Returns processor time and peak memory of both sides."""
    return {
        "processor s": ours["processor seconds"][phase],
        "its processor s": theirs["processor seconds"][phase],
        "peak GiB": ours["memory"][phase]["peak"],
        "its peak GiB": theirs["memory"][phase]["peak"],
    }


def _load_row(ours: Any, theirs: Any, size: int) -> BenchmarkRow:
    facts = {"file GiB": size / GIB, **_facts(ours, theirs, "load")}
    facts |= {
        "of which mapped files, now GiB": ours["memory"]["load"]["files"],
        "its mapped files, now GiB": theirs["memory"]["load"]["files"],
    }
    return BenchmarkRow(
        name="load",
        ours_s=ours["seconds"]["load"],
        alternative="transformers, dtype auto",
        alternative_s=theirs["seconds"]["load"],
        precision="bfloat16",
        facts=facts,
    )


def _search_row(ours: Any, theirs: Any, exact: Any) -> BenchmarkRow:
    a, b = (np.array(found["validation"]) for found in (ours, theirs))
    wrong = a.argmax(axis=2) != b.argmax(axis=2)
    true = np.array(exact["validation"])
    rounding = [_measure.disagreement(x[:1, :EXACT], true) for x in (a, b)]
    later = ours["seconds"]["later search"]
    changed = (b.argmax(axis=2) != b.argmax(axis=2)[:1]).sum()
    return BenchmarkRow(
        name=f"search over {len(RATES)} rates, layer {LAYER}, mlp",
        ours_s=ours["seconds"]["search"],
        alternative=f"transformers, batches of {BATCH}",
        alternative_s=theirs["seconds"]["search"],
        precision="bfloat16",
        error=_measure.disagreement(a, b),
        tolerance=TOLERANCE,
        note=f"pruning changes {changed} of {wrong.size} answers, {wrong.sum()} differ,"
        f" chosen rates {ours['rate']:g} and {theirs['rate']:g}",
        facts={
            "later call s": later,
            "ratio of later calls x": theirs["seconds"]["search"] / later,
            "later call, processor s": ours["processor seconds"]["later search"],
            "from float32:": rounding[0],
            "transformers from float32:": rounding[1],
            **_facts(ours, theirs, "search"),
            "its mapped files, at the end GiB": theirs["memory"]["search"]["files"],
        },
    )


if __name__ == "__main__":
    if sys.argv[1:2] == ["--write"]:
        write(Path(sys.argv[2]))
    else:
        _alone.main(measure)
