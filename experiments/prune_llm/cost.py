"""``python -m experiments.prune_llm.cost --preset gptj``: cost of a run in advance.

Everything is counted from the model's config and the experiment's: parameters, bytes on
each of --devices, floating-point operations, and seconds at a speed that is given, and
compared with the free memory of this machine. --checkpoint names a folder whose
config.json and headers of weights are read in place of the published model; no weight
is. Lengths of prompts are estimates for the published tokenizers, or measured by the
folder's tokenizer where --task-folder names the data.
"""

import dataclasses
import itertools
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Literal, NamedTuple

import jax
import numpy as np
from rich.table import Table

from experiments._frame.fields import check_at_least
from experiments._frame.program import run_program
from experiments._frame.tyro_line import read_line
from experiments.prune_llm.config import PRESETS, Config
from experiments.prune_llm.published_models import CONFIGS
from experiments.prune_llm.subject import PUBLISHED_LAYERS, grid_layers
from icltheory.bridge.architecture import Architecture
from icltheory.bridge.cost import (
    CheckpointCost,
    ModelCost,
    checkpoint_cost,
    device_bytes,
    free_memory,
    model_cost,
)
from icltheory.bridge.families import read_architecture
from icltheory.bridge.tasks import LanguageTask

GB = 1e9
_MEASURED = 50  # number of examples whose prompts are measured


class TaskSize(NamedTuple):
    """Number of examples and tokens of a task.

    Attributes:
        demonstrations: Number of demonstrations.
        prefix: Tokens of all demonstrations.
        question: Tokens of a question, with its options.
        validation: Validation examples.
        test: Test examples.
    """

    demonstrations: int
    prefix: float
    question: float
    validation: int
    test: int


# Sizes are from section C.3 of the paper; lengths are estimates.
ASSUMED = {
    "sst2": TaskSize(10, 210, 18, 8000, 59339),
    "agnews": TaskSize(8, 496, 60, 8000, 7600),
    "emoc": TaskSize(10, 260, 24, 5000, 5509),
    "mrpc": TaskSize(10, 700, 68, 408, 1725),
    "rte": TaskSize(10, 890, 86, 2480, 277),
    "cb": TaskSize(15, 1575, 103, 235, 56),
    "copa": TaskSize(10, 210, 42, 200, 100),
}


@dataclasses.dataclass(frozen=True)
class Work:
    """Operations and answers that one task requires.

    Attributes:
        task: Its name.
        answers: Number of answers: an example at a layer, module and rate.
        grid_flops: Operations of the grid of Figures 1 and 2.
        search_flops: Operations of Algorithm 1 and its arms, with the test set.
    """

    task: str
    answers: int
    grid_flops: float
    search_flops: float


@dataclasses.dataclass(frozen=True)
class Memory:
    """Memory that one device needs at the same time, and bytes on disk.

    Attributes:
        weights: Weights of the model.
        pruned: Pruned matrices of the layers that are evaluated together.
        prefix: Keys and values of the demonstrations, for every rate.
        activations: The widest activations of a batch, for every rate.
        disk: Weights and singular systems on disk.
    """

    weights: float
    pruned: float
    prefix: float
    activations: float
    disk: float

    @property
    def total(self) -> float:
        """Bytes that the device needs at the same time."""
        return self.weights + self.pruned + self.prefix + self.activations


def works(
    config: Config, arch: Architecture, sizes: dict[str, TaskSize]
) -> tuple[Work, ...]:
    r"""Counts operations and answers for every task.

    Of P tokens in front and V questions of q tokens, a group of layers takes

    .. math:: (P + V q) \Big( l_{\max} + |C| \sum_{l, m} (L - l) \Big)

    tokens through a layer, m over the modules: the layers below run once for all rates.

    Args:
        config: The experiment.
        arch: The model's architecture.
        sizes: Sizes of its tasks.
    """
    return tuple(_work(config, arch, task, sizes[task]) for task in config.tasks)


def _work(config: Config, arch: Architecture, task: str, size: TaskSize) -> Work:
    layers, rates = grid_layers(config, arch.num_layers), len(config.rates)
    modules, grid, answers = len(config.modules), 0.0, 0
    for shots in dict.fromkeys(config.shots):
        own = _with_shots(size, shots)
        tokens = own.prefix + size.validation * size.question
        grid += tokens * _layers_run(config, arch, layers) * _flops(config, arch, own)
        answers += size.validation * rates * modules * len(layers)
    search = 0.0
    own = _with_shots(size, config.shots[0])
    draws = len(config.demonstration_seeds) * len(config.orders)
    for module, arm in itertools.product(config.modules, ("condition", *config.arms)):
        layer = _layer(arch, module, arm)
        below, above = layer, arch.num_layers - layer
        known = arm == "condition" and layer in layers
        searches = draws - known
        validation = own.prefix + size.validation * size.question
        test = own.prefix + size.test * size.question
        tokens = searches * validation * (below + rates * above)
        tokens += draws * test * (below + 2 * above)
        search += tokens * _flops(config, arch, own)
        answers += searches * size.validation * rates + draws * 2 * size.test
    return Work(task, round(answers), grid, search)


def _layers_run(config: Config, arch: Architecture, layers: tuple[int, ...]) -> float:
    """Number of layers that a token passes, over all groups of layers of the grid."""
    total, rates, modules = 0.0, len(config.rates), len(config.modules)
    for start in range(0, len(layers), config.layers_at_once):
        group = layers[start : start + config.layers_at_once]
        total += max(group)
        total += rates * modules * sum(arch.num_layers - layer for layer in group)
    return total


def _layer(arch: Architecture, module: str, arm: str) -> float:
    """Layer of an arm: the published one, or the mean over random ones."""
    if arm == "random":
        return (arch.num_layers - 1) / 2
    known = PUBLISHED_LAYERS.get((arch.family, arch.num_layers), {})
    return known.get(module, arch.num_layers - 1)


def _with_shots(size: TaskSize, shots: int) -> TaskSize:
    shown = size.demonstrations if shots == -1 else min(shots, size.demonstrations)
    return size._replace(prefix=size.prefix * shown / max(size.demonstrations, 1))


def _flops(config: Config, arch: Architecture, size: TaskSize) -> int:
    context = round(size.prefix + size.question / 2)
    return model_cost(arch, config.dtype, context).layer_flops


def decomposition_flops(config: Config, arch: Architecture) -> tuple[float, float]:
    """Operations of all condition numbers, and of decompositions of pruned layers.

    The first are in float64 on the host, singular values alone; the second in float32,
    :math:`6 m n^2 + 20 n^3` with vectors (Golub and Van Loan).
    """
    cost = model_cost(arch, config.dtype)
    values = arch.num_layers * sum(map(cost.svd_flops, cost.matrices))
    systems = 0
    for m, n in map(sorted, cost.matrices.values()):
        systems += 6 * n * m**2 + 20 * m**3
    return values, len(_pruned_layers(config, arch)) * systems


def _pruned_layers(config: Config, arch: Architecture) -> set[int]:
    chosen = {round(_layer(arch, m, "condition")) for m in config.modules}
    drawn = "random" in config.arms
    # One random layer for each task and module, at most all layers.
    count = len(config.tasks) * len(config.modules) * drawn
    layers = set(grid_layers(config, arch.num_layers)) | chosen
    more = [layer for layer in range(arch.num_layers) if layer not in layers]
    return layers | set(more[:count])


def memory(
    config: Config,
    arch: Architecture,
    sizes: dict[str, TaskSize],
    devices: int = 1,
) -> Memory:
    """Counts the bytes of weights, pruned matrices, cached prefixes and activations.

    Devices share weights and pruned matrices. What depends on the prompts is counted
    whole on each of them, which is more than it takes.

    Args:
        config: The experiment.
        arch: The model's architecture.
        sizes: Sizes of its tasks.
        devices: Devices that share the weights.
    """
    cost, rates = model_cost(arch, config.dtype), len(config.rates)
    size = cost.num_bytes // cost.parameters
    longest = max(sizes[task].prefix for task in config.tasks)
    question = max(sizes[task].question for task in config.tasks)
    layers = grid_layers(config, arch.num_layers)[: config.layers_at_once]
    above = sum(arch.num_layers - layer for layer in layers) / arch.num_layers
    prefix = longest * cost.cache_bytes * (1 + rates * len(config.modules) * above)
    wide = arch.mlp_width * (1 + arch.gated) + 4 * arch.width
    weights = device_bytes(arch, config.dtype, devices)
    pruned = len(layers) * rates * _matrix_numbers(cost) * size
    return Memory(
        weights=weights,
        pruned=pruned * weights / cost.num_bytes,
        prefix=prefix,
        activations=rates * config.batch_size * question * wide * size,
        disk=cost.num_bytes + 4 * len(_pruned_layers(config, arch)) * _factors(cost),
    )


def _matrix_numbers(cost: ModelCost) -> int:
    return sum(m * n for m, n in cost.matrices.values())


def _factors(cost: ModelCost) -> int:
    return sum((m + n + 1) * min(m, n) for m, n in cost.matrices.values())


def measured_size(task: LanguageTask, encode: Callable[[str], list[int]]) -> TaskSize:
    """Measures the size of a task with a tokenizer, on some of its questions.

    Args:
        task: The task.
        encode: Text to tokens.
    """
    prefix = len(encode(task.prefix(None)))
    lengths = []
    for example in task.validation[:_MEASURED]:
        query = task.prefix(None) + task.query(example)
        choices = task.kind == "choice"
        endings = task.options(example) if choices else ("",)
        lengths.append(sum(len(encode(query + end)) - prefix for end in endings))
    return TaskSize(
        len(task.demonstrations),
        prefix,
        float(np.mean(lengths)),
        len(task.validation),
        len(task.test),
    )


def tables(
    config: Config,
    arch: Architecture,
    sizes: dict[str, TaskSize],
    flops_per_second: float,
    devices: int = 1,
) -> list[Table]:
    """Builds the tables of memory and time.

    Args:
        config: The experiment.
        arch: The model's architecture.
        sizes: Sizes of its tasks.
        flops_per_second: Operations that the device reaches in a second.
        devices: Devices that share the weights.
    """
    return [
        _memory_table(config, arch, sizes, devices),
        *_time_tables(config, arch, sizes, flops_per_second),
    ]


def _memory_table(config, arch, sizes, devices) -> Table:
    cost, held = model_cost(arch, config.dtype), memory(config, arch, sizes, devices)
    each = f" on each of {devices}" if devices > 1 else ""
    table = Table(title=f"Memory: {cost.parameters:,} parameters in {config.dtype}")
    table.add_column("what")
    table.add_column(f"GB{each}", justify="right")
    for name, value in (
        ("weights", held.weights),
        (f"pruned matrices, {config.layers_at_once} layers at once", held.pruned),
        ("keys and values of the demonstrations", held.prefix),
        (f"activations of a batch of {config.batch_size}", held.activations),
        ("together", held.total),
        ("on disk: weights and singular systems", held.disk),
    ):
        table.add_row(name, f"{value / GB:.1f}")
    on_cpu = jax.default_backend() == "cpu"
    free, needed = free_memory(), held.total * (devices if on_cpu else 1)
    if free is not None:
        where = "this machine" if on_cpu else "the first device"
        answer = "fits" if needed <= free else "does not fit"
        table.add_row(f"free on {where}: the run {answer}", f"{free / GB:.1f}")
    return table


def checkpoint_table(cost: CheckpointCost) -> Table:
    """Builds the table of what loading a checkpoint requires, from its headers.

    Args:
        cost: What was counted.
    """
    table = Table(title=f"Checkpoint: {cost.parameters:,} parameters")
    for name in ("in the file", "loaded as", "GB", "GB a device", "free", "weights"):
        table.add_column(name)
    free = "unknown" if cost.free is None else f"{cost.free / GB:.2f}"
    answer = {True: "fit", False: "do not fit", None: "unknown"}[cost.fits]
    table.add_row(
        cost.file_dtype,
        cost.dtype,
        f"{cost.num_bytes / GB:.2f}",
        f"{cost.device_bytes / GB:.2f} on {cost.devices}",
        free,
        answer,
    )
    return table


def _time_tables(config, arch, sizes, speed) -> list[Table]:
    table = Table(title=f"Time at {speed:.3g} operations per second")
    for name in ("task", "answers", "grid", "Algorithm 1 and arms", "hours"):
        table.add_column(name, justify="left" if name == "task" else "right")
    found = works(config, arch, sizes)
    whole = Work(
        "all",
        sum(w.answers for w in found),
        sum(w.grid_flops for w in found),
        sum(w.search_flops for w in found),
    )
    for work in (*found, whole):
        hours = (work.grid_flops + work.search_flops) / speed / 3600
        table.add_row(
            work.task,
            f"{work.answers:,}",
            f"{work.grid_flops:.2e}",
            f"{work.search_flops:.2e}",
            f"{hours:.2f}",
        )
    values, systems = decomposition_flops(config, arch)
    once = Table(title="Once, on the host: operations")
    for name in ("condition numbers (float64)", "singular systems (float32)"):
        once.add_column(name, justify="right")
    once.add_row(f"{values:.2e}", f"{systems:.2e}")
    return [table, once]


@dataclasses.dataclass(frozen=True)
class Options:
    """Options of the command.

    Attributes:
        preset: Preset whose run is planned.
        checkpoint: Folder with config.json, and safetensors whose headers are read.
        task_folder: Folder of the tasks' data, to measure prompts by the tokenizer of
            the checkpoint.
        devices: Devices that share the weights.
        flops_per_second: Operations that your device reaches in a second.
        layers_at_once: Layers whose pruned weights are held together; 0 for the preset.
    """

    preset: Literal["gptj", "llama2"] = "gptj"
    checkpoint: str = ""
    task_folder: str = ""
    devices: int = 1
    flops_per_second: float = 1e14
    layers_at_once: int = 0


def plan(options: Options) -> list[Table]:
    """Builds the tables that a command line requests."""
    config, speed = PRESETS[options.preset], options.flops_per_second
    check_at_least(options, 1, "devices")
    check_at_least(options, 0, "layers_at_once")
    if not 0 < speed < math.inf:
        raise ValueError(f"flops_per_second: expected a number above 0, got {speed:g}")
    if options.layers_at_once:
        config = dataclasses.replace(config, layers_at_once=options.layers_at_once)
    arch, sizes = read_architecture(CONFIGS[options.preset]), ASSUMED
    folder, first = Path(options.checkpoint), []
    if options.checkpoint and any(folder.glob("*.safetensors")):
        cost = checkpoint_cost(folder, config.dtype, devices=options.devices)
        arch, first = cost.arch, [checkpoint_table(cost)]
    elif options.checkpoint:  # weights in Flax's format have no header
        path = folder / "config.json"
        if not path.is_file():
            raise FileNotFoundError(
                f"checkpoint: expected a folder with config.json, got {folder}"
            )
        arch = read_architecture(json.loads(path.read_text()), path)
    if options.task_folder:
        if not options.checkpoint:
            raise ValueError(
                "task_folder: expected --checkpoint as well, whose tokenizer measures "
                "the prompts, got none"
            )
        sizes = _measured(config, folder, options.task_folder)
    return [*first, *tables(config, arch, sizes, speed, options.devices)]


def _measured(config: Config, folder: Path, task_folder: str) -> dict[str, TaskSize]:
    from icltheory.bridge import Tokenizer, load_task

    encode = Tokenizer(folder).encode
    sizes = {}
    for name in config.tasks:
        task = load_task(name, Path(task_folder) / name, config.profile)
        sizes[name] = measured_size(task, encode)
    return sizes


def main(argv: list[str] | None = None) -> None:
    """Parses the command line and prints the tables."""
    from rich.console import Console

    about = (__doc__ or "").partition("\n")[0]
    given = read_line(Options(), argv, name="prune_llm.cost", about=about)
    for table in plan(given):
        Console().print(table)


if __name__ == "__main__":
    run_program(main)
