"""Computes the memory and time of a run in advance, without reading a weight.

``python -m experiments.real_model cost --preset gptj`` counts bytes on each of
--devices and operations from the configs of the model and of the preset, and prints one
table. Lengths of prompts are estimates.
"""

import dataclasses
import json
import math
from pathlib import Path
from typing import Any, Literal

from rich.console import Console

from experiments import frame
from experiments.frame import check_at_least, expect
from experiments.real_model.config import PRESETS, PROMPTS, SCORINGS, Config, arms_of
from experiments.real_model.published import CONFIGS
from icltheory.bridge.architecture import Architecture
from icltheory.bridge.cost import fits, free_memory, model_cost
from icltheory.bridge.families import read_architecture
from icltheory.bridge.tasks import TASKS

GB = 1e9
# Demonstrations (section C.3 of the paper), and estimates of the tokens of one and of a
# question with its options.
SIZES = {
    "sst2": (10, 21, 18),
    "agnews": (8, 62, 60),
    "emoc": (10, 26, 24),
    "mrpc": (10, 70, 68),
    "rte": (10, 89, 86),
    "cb": (15, 105, 103),
    "copa": (10, 21, 42),
}


@dataclasses.dataclass(frozen=True)
class Options:
    """Options of the command."""

    preset: Literal["gptj", "llama2"] = "gptj"  # preset whose run is planned
    # folder whose config.json is read in place of that of the published model
    checkpoint: str = ""
    devices: int = 1  # devices that share the weights
    flops_per_second: float = 1e14  # operations that your device reaches in a second


def work(config: Config, arch: Architecture, task: str) -> dict[str, float]:
    r"""Counts the operations of a task by parts; the smaller parts are left out.

    Of P tokens in front and V questions of q tokens, a layer l that is pruned at r
    rates takes :math:`(P + V q) (l + r (L - l))` tokens through a layer: the layers
    below it run once for all rates.
    """
    depth, (shown, demonstration, question) = arch.num_layers, SIZES[task]

    def flops(questions: int, passes: float, shots: int = shown) -> float:
        prefix = demonstration * shots
        context = round(prefix + question / 2)
        each = model_cost(arch, config.dtype, context=context).layer_flops
        return (prefix + questions * question) * passes * each

    prompts = len(SCORINGS[TASKS[task].kind]) * (4 if PROMPTS[task][1] else 2)
    unpruned = prompts * flops(config.examples, depth)
    for shots in config.shots:
        most = config.most_shots if shots == -1 else shots
        unpruned += config.draws * flops(config.test_examples, depth, most)
    rates = len(config.modules) * len(config.grid_rates)
    layers = config.layers or range(depth)
    passes = sum(layer + rates * (depth - layer) for layer in layers)
    runs = sum(
        len(arms_of(config, module, draw))
        for module in config.modules
        for draw in range(config.draws)
    )
    # The chosen layers are not known: half of the model is below.
    clipped = depth / 2 * len(config.rates)
    asked = config.search_examples + config.test_examples
    searches = runs * flops(config.search_examples, clipped)
    searches += runs * flops(config.test_examples, depth)
    searches += config.draws * flops(asked, depth)
    grid = flops(config.examples, passes)
    return {"unpruned": unpruned, "grid": grid, "searches": searches}


def memory(config: Config, arch: Architecture, devices: int = 1) -> dict[str, float]:
    """Counts the bytes that a device holds at the same time, and those on disk.

    Devices share weights and pruned matrices; what depends on prompts each has whole.
    """
    cost = model_cost(arch, config.dtype, devices=devices)
    rates = max(len(config.rates), len(config.grid_rates))
    byte, shapes = cost.num_bytes // cost.parameters, cost.matrices.values()
    longest = max(SIZES[task][0] * SIZES[task][1] for task in config.tasks)
    tokens = config.batch_size * max(SIZES[task][2] for task in config.tasks)
    wide = arch.mlp_width * (1 + arch.gated) + 4 * arch.width
    share = cost.device_bytes / cost.num_bytes
    numbers = sum(m * n for m, n in shapes)
    systems = 4 * arch.num_layers * sum((m + n + 1) * min(m, n) for m, n in shapes)
    # All layers are above the first one, for every rate of both modules.
    caches = longest * cost.cache_bytes * (1 + rates * len(config.modules))
    held = {
        "weights": cost.device_bytes,
        "pruned matrices of a layer": share * rates * numbers * byte,
        "keys and values of the demonstrations": caches,
        f"activations of a batch of {config.batch_size}": rates * tokens * wide * byte,
    }
    on_disk = {"on disk: weights and singular systems": cost.num_bytes + systems}
    return {**held, "together": sum(held.values()), **on_disk}


def plan(options: Options) -> Any:
    """Builds the table that a command line requests."""
    config, speed = PRESETS[options.preset], options.flops_per_second
    check_at_least(options, 1, "devices")
    expect(0 < speed < math.inf, "flops_per_second", "a number above 0", speed)
    read, path = CONFIGS[options.preset], Path(options.checkpoint, "config.json")
    if options.checkpoint:
        if not path.is_file():
            raise FileNotFoundError(
                f"checkpoint: expected a folder with config.json, got {path.parent}"
            )
        read = json.loads(path.read_text())
    arch = read_architecture(read)
    counts = memory(config, arch, options.devices)
    if (free := free_memory()) is not None:
        answer = "fits" if fits(counts["together"], options.devices) else "does not fit"
        counts[f"free here: the run {answer}"] = free
    works = {task: work(config, arch, task) for task in config.tasks}
    times = {task: sum(parts.values()) for task, parts in works.items()}
    total = sum(times.values())
    for part in next(iter(works.values())):
        times[f"all tasks: {part}"] = sum(parts[part] for parts in works.values())
    times["all tasks"] = total
    heads = "what", f"GB on each of {options.devices}", "operations", "hours"
    rows = [(name, f"{size / GB:.1f}", "", "") for name, size in counts.items()]
    rows += [
        (name, "", f"{count:.2e}", f"{count / speed / 3600:.2f}")
        for name, count in times.items()
    ]
    parameters = model_cost(arch, config.dtype).parameters
    return frame.table(
        [dict(zip(heads, row, strict=True)) for row in rows],
        title=f"{parameters:,} parameters in {config.dtype}, {speed:.3g} operations/s",
    )


def main(argv: list[str] | None = None) -> None:
    """Parses the command line and prints the table."""
    about = (__doc__ or "").partition("\n")[0]
    given = frame.read_line(Options(), argv, name="real_model cost", about=about)
    Console().print(plan(given))
