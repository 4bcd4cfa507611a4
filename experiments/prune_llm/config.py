"""Config and presets of the experiment: model, tasks, pruning and evaluation."""

import dataclasses
from pathlib import Path
from typing import Annotated, Literal

import tyro

from experiments._frame.fields import check_at_least

# The optimal rates in Tables 2 to 8 of Yao et al.; the paper does not list its grid.
PAPER_RATES = (0.0, 0.1, 0.5, 0.75, 0.9, 0.95, 0.99, 0.995)
ArmName = Literal["random", "whitened", "activation", "magnitude", "random_vectors"]


@dataclasses.dataclass(frozen=True)
class Config:
    """The model, tasks, pruning and evaluation of one run; it decides every number.

    Attributes:
        checkpoint: Folder in the Hugging Face layout, or a name on the hub.
        tasks: Names of tasks: those of the library, or of the small language model; or
            YAML files of declarations.
        task_folder: Folder with one of the task's name for each; "" for the hub.
            Declarations in files say themselves where their data are.
        rates: Clipping rates; 0 has to be among them.
        top_k: Algorithm 1's k: layers of largest condition number.
        aggregate: How the condition numbers of a module's matrices become one.
        modules: Modules that are pruned, one at a time.
        layers: Layers of the grid, counted from the last if negative; all if empty.
            Algorithm 1 chooses among all layers in any case.
        profile: What the paper says, or what the authors' scripts do.
        scoring: How the options of an example are compared, such as "pmi"; "" for what
            each task declares.
        shots: Demonstrations in front; -1 for all. Everything is done with the first
            number, the grid with the others too.
        demonstration_seeds: Draws of the demonstrations; the grid is of the first.
        orders: Orders of them: 0 as drawn, other numbers seed a random one.
        arms: What stands beside Algorithm 1 under the same search budget: a "random"
            layer; or the same layer and as many parameters, with all singular values
            that a rate keeps made equal ("whitened"), cut by what comes out
            ("activation"), cut to its largest entries ("magnitude"), or with random
            directions of the same singular values ("random_vectors").
        calibration: Text file whose tokens tell "activation" the inputs of a matrix;
            the task's demonstrations if "".
        race: Whether Algorithm 1 searches by a race; one over the grid's answers is
            reported in any case.
        at_least_one: Whether a rate that leaves rank 0 leaves rank 1 instead; else it
            is left out of the module.
        revision: Branch, tag or commit of a name on the hub; "" for the newest.
        dtype: Of weights and products.
        examples: Most examples of a split, evenly spaced; all if 0.
        batch_size: Examples that run together.
        layers_at_once: Layers whose pruned weights are held at the same time.
        naive_examples: Examples that the plain way is compared and timed on.
        level: Level of all intervals, and one minus the level of all tests.
        seed: Of races and the bootstrap.
    """

    checkpoint: str
    tasks: Annotated[tuple[str, ...], tyro.conf.arg(aliases=("--task",))]
    task_folder: str
    rates: tuple[float, ...]
    top_k: int
    aggregate: Literal["max", "mean", "geometric_mean", "min"] = "max"
    modules: tuple[str, ...] = ("mlp", "attn")
    layers: tuple[int, ...] = ()
    profile: Literal["paper", "authors_code"] = "paper"
    scoring: str = ""
    shots: tuple[int, ...] = (-1, 4, 0)
    demonstration_seeds: tuple[int, ...] = (0,)
    orders: tuple[int, ...] = (0,)
    arms: tuple[ArmName, ...] = ()
    calibration: str = ""
    race: bool = False
    at_least_one: bool = False
    revision: str = ""
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    examples: int = 0
    batch_size: int = 32
    layers_at_once: int = 4
    naive_examples: int = 16
    level: float = 0.95
    seed: int = 0

    def __post_init__(self):
        check_at_least(self, 0, "examples", "seed")
        check_at_least(self, 1, "top_k", "batch_size", "layers_at_once")
        check_at_least(self, 1, "naive_examples")
        least = {"shots": -1, "demonstration_seeds": 0, "orders": 0}
        for name in ("tasks", "modules", "rates", *least):
            values = getattr(self, name)
            if not values or len(set(values)) < len(values):
                raise ValueError(
                    f"{name}: expected at least one value and no duplicates, got "
                    f"{values}"
                )
            if name in least and min(values) < least[name]:
                raise ValueError(
                    f"{name}: expected numbers >= {least[name]}, got {min(values)}"
                )
        if len(set(self.task_names)) < len(self.tasks):
            raise ValueError(
                f"tasks: expected files of distinct names, got {self.tasks}"
            )
        if len(set(self.arms)) < len(self.arms):
            raise ValueError(f"arms: expected no duplicates, got {self.arms}")
        for rate in self.rates:
            if not 0 <= rate < 1:
                raise ValueError(f"rates: expected numbers in [0, 1), got {rate:g}")
        if list(self.rates) != sorted(self.rates) or self.rates[0] != 0:
            raise ValueError(
                f"rates: expected ascending rates that begin with 0, got {self.rates}"
            )
        if not 0 < self.level < 1:
            raise ValueError(f"level: expected a value within (0, 1), got {self.level}")

    @property
    def task_names(self) -> tuple[str, ...]:
        """Task names for tables and figures; a file is named without its folder."""
        return tuple(Path(task).stem for task in self.tasks)


_GPTJ = Config(
    checkpoint="EleutherAI/gpt-j-6b",
    tasks=("sst2", "agnews", "emoc", "mrpc", "rte", "cb", "copa"),
    task_folder="",
    rates=PAPER_RATES,
    top_k=4,
    # The layers of Figure 1.
    layers=(0, 1, -2, -1),
    arms=("random", "whitened"),
    # The dtype of the files, since other dtypes have other condition numbers.
    dtype="float16",
    layers_at_once=2,
)
PRESETS = {
    "tiny": Config(
        checkpoint="experiments/small_lm/checkpoint",
        tasks=("nonce", "nonce_topic", "sentiment", "topic"),
        task_folder="experiments/small_lm/tasks",
        # The keys have 32 singular values, of which the rate 0.95 keeps one.
        rates=(0.0, 0.1, 0.25, 0.5, 0.75, 0.85, 0.9, 0.95),
        top_k=2,
        demonstration_seeds=(0, 1, 2),
        orders=(0, 1),
        arms=("random", "whitened", "activation", "magnitude", "random_vectors"),
        naive_examples=128,
    ),
    "gptj": _GPTJ,
    "llama2": dataclasses.replace(_GPTJ, checkpoint="meta-llama/Llama-2-7b-hf"),
}
# Measured times; the other presets have not been run yet.
TIMES = {"tiny": "5.5 min, 2 cores"}
