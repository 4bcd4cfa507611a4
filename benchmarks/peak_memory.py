"""Time and peak memory of an evaluation or a search, each side in its own process.

    python -m benchmarks.peak_memory FOLDER write small        # or large, 4.4 GB
    python -m benchmarks.peak_memory FOLDER icltheory          # one evaluation
    python -m benchmarks.peak_memory FOLDER transformers 7     # eight rates of layer 7

The model is that of ``transformers_search``, in float32. Each command prints the
seconds of loading, of the first and the last call, and the largest resident set.
"""

import json
import resource
import sys
import time
from pathlib import Path

import numpy as np

from benchmarks.torch_search import BATCH, RATES, Torch

# Questions and demonstrations.
SIZES = {"small": (64, 10), "large": (4, 1)}


def write(folder: Path, size: str) -> None:
    """Writes the checkpoint and the tokens of the prompts."""
    from benchmarks.cases import transformers_search as cases
    from icltheory.bridge import save_checkpoint
    from icltheory.bridge.evaluation import tokenize

    config = {"small": cases.SMALL, "large": cases.LARGE}[size]
    model = cases.model_of(config | {"torch_dtype": "float32"})
    prompts = tokenize(model, cases.questions_of(config, *SIZES[size]))
    save_checkpoint(model, folder)
    rows = [(*prompts.prefix, *row) for row in prompts.rows]
    asked = {"size": size, "rows": rows, "labels": prompts.label_ids}
    (folder / "prompts.json").write_text(json.dumps(asked))


def icltheory(folder: Path, layer: int | None):
    """Loads the checkpoint; returns the search, or one evaluation without a layer."""
    from benchmarks.cases import transformers_search as cases
    from icltheory.bridge import Evaluator, load_checkpoint

    size = json.loads((folder / "prompts.json").read_text())["size"]
    model = load_checkpoint(folder)
    model = model.replace(tokenizer=cases.Words(model.vocab_size))
    task = cases.questions_of(model.config, *SIZES[size])
    pruned = [()] if layer is None else [f"{layer}:mlp:{rate}" for rate in RATES]
    return lambda: Evaluator(model, task, batch_size=BATCH).scores("validation", pruned)


def transformers(folder: Path, layer: int | None):
    """The same in transformers, in batches of whole prompts."""
    asked, model = json.loads((folder / "prompts.json").read_text()), Torch(str(folder))
    return lambda: model.searched(asked["rows"], asked["labels"], layer)


def measure(folder: Path, side: str, layer: int | None) -> None:
    """Prints times and the peak, and stores the scores for a comparison."""
    moments = [time.perf_counter()]
    call = {"icltheory": icltheory, "transformers": transformers}[side](folder, layer)
    moments.append(time.perf_counter())
    scores = call()
    moments.append(time.perf_counter())
    if side == "icltheory":  # whose first call compiles
        scores = call()
        moments.append(time.perf_counter())
    np.save(folder / f"{side}-{layer}.npy", scores)
    load, first, *_, later = [*np.diff(moments), moments[-1] - moments[-2]]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(
        f"{side}, {'one evaluation' if layer is None else f'layer {layer}'}: load "
        f"{load:.1f} s, first {first:.1f} s, later {later:.1f} s, peak {peak:.2f} GiB"
    )


if __name__ == "__main__":
    folder, command, *rest = sys.argv[1:]
    if command == "write":
        write(Path(folder), *rest)
    else:
        measure(Path(folder), command, int(rest[0]) if rest else None)
