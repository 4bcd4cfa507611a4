"""Config and presets of the experiment, and the objects built from them."""

import dataclasses
from typing import Any, Literal

import jax
import jax.numpy as jnp

from experiments._frame.extend import depends_on_all_steps
from experiments._frame.fields import check_at_least
from experiments._trained.recipes import GPT2_CPU
from experiments.garg_linear.families import FAMILIES, Family
from experiments.garg_linear.sizes import Baselines, FamilySizes
from icltheory import training
from icltheory.models import GPT2
from icltheory.training import Curriculum, OptimizerConfig, Ramp


@dataclasses.dataclass(frozen=True)
class Config:
    """Sizes and recipe; with the seeds it decides every number.

    Attributes:
        dim: Input dimension d.
        num_points: Points of a prompt; the last k is one less.
        width: Width of the residual stream.
        num_layers: Blocks.
        num_heads: Attention heads.
        mlp: Whether the blocks have their MLP.
        init_std: Standard deviation of the initial weights.
        token_layout: Garg's interleaved tokens, one token a pair, or one token for an
            input and the label before it.
        steps: Training steps.
        batch_size: Prompts a step.
        accumulation: Parts of a batch, to save memory.
        seeds: One run for each, all in one program.
        targets: What answers are compared with: labels, or the posterior means of which
            labels are noisy copies (the same mean gradient with less noise).
        precision: Of the matrix products; parameters and sums stay float32.
        optimizer: Update rule and its schedule.
        curriculum: Which coordinates and points count when.
        chunk_steps: Steps a dispatch, and a line of metrics.jsonl.
        checkpoint_every: Steps between checkpoints.
        snapshots: Parts of the run after which the error curve is measured.
        eval_prompts: Fresh prompts of an evaluation.
        ridge_penalty: Penalty of the ridge predictor in the table.
        task: Family of the functions to learn. It decides what is trained on, what the
            model is compared with and what errors are divided by. As an option it
            also sets the number of points to 2d + 1 (linear functions) or 5d + 1.
        family: Sizes of the families other than linear functions.
        baselines: Recipes of the methods that are compared with the model.
    """

    dim: int
    num_points: int
    width: int
    num_layers: int
    num_heads: int
    steps: int
    batch_size: int
    optimizer: OptimizerConfig
    curriculum: Curriculum
    mlp: bool = True
    init_std: float = 0.02
    token_layout: Literal["interleaved", "matrix", "shifted"] = "interleaved"
    accumulation: int = 1
    seeds: tuple[int, ...] = (0,)
    targets: Literal["labels", "posterior"] = "labels"
    precision: Literal["float32", "tf32", "bfloat16"] = "float32"
    chunk_steps: int = 100
    checkpoint_every: int = 1000
    snapshots: tuple[float, ...] = (0.02, 0.05, 0.1, 0.25, 0.5, 1.0)
    eval_prompts: int = 1280
    ridge_penalty: float = 1.0
    task: Literal["linear", "sparse", "relu_network", "decision_tree"] = "linear"
    family: FamilySizes = FamilySizes()
    baselines: Baselines = Baselines()

    def __post_init__(self):
        counts = ("dim", "width", "num_layers", "num_heads", "steps", "batch_size")
        chunks = ("accumulation", "chunk_steps", "checkpoint_every")
        check_at_least(self, 1, *counts, *chunks)
        check_at_least(self, 2, "eval_prompts")
        check_at_least(self, 0, "ridge_penalty")
        if self.width % self.num_heads:
            raise ValueError(
                f"num_heads: expected a divisor of width {self.width}, "
                f"got {self.num_heads}"
            )
        if self.num_points < 2 * self.dim + 1:
            raise ValueError(
                f"num_points: expected at least 2 dim + 1 = {2 * self.dim + 1}, "
                f"got {self.num_points}"
            )
        self._check_family()
        ramps = (("dims", self.dim), ("points", self.num_points))
        for name, full in ramps:
            end = getattr(self.curriculum, name).end
            if end != full:
                raise ValueError(
                    f"curriculum.{name}.end: expected the full {full}, got {end}"
                )
        if not self.seeds or len(set(self.seeds)) < len(self.seeds):
            raise ValueError(
                f"seeds: expected at least one seed, all distinct, got {self.seeds}"
            )
        if not self.snapshots or not all(0 < part <= 1 for part in self.snapshots):
            raise ValueError(
                f"snapshots: expected at least one value, each in (0, 1], got "
                f"{self.snapshots}"
            )

    def _check_family(self) -> None:
        if self.task not in FAMILIES:
            raise ValueError(
                f"task: expected one of {', '.join(FAMILIES)}, got {self.task}"
            )
        if self.targets == "posterior" and not FAMILIES[self.task].has_posterior:
            raise ValueError(
                f"targets: expected labels with the task {self.task}, whose posterior "
                "means are not known, got posterior"
            )

    def of_task(self, task: str) -> "Config":
        """Returns this config for another family, with its length of prompts."""
        if task not in FAMILIES:
            return self  # the full parser reports the error later
        points = FAMILIES[task].points_per_dim * self.dim + 1
        ramp, stretch = self.curriculum.points, (points - 1) / (self.num_points - 1)
        longer = Ramp(
            round(stretch * (ramp.start - 1)) + 1,
            points,
            max(round(stretch * ramp.increment), 1),
            ramp.interval,
        )
        return dataclasses.replace(
            self,
            task=task,  # type: ignore
            num_points=points,
            curriculum=dataclasses.replace(self.curriculum, points=longer),
        )

    def needs_all_steps(self) -> str | None:
        """Returns why the run cannot be extended by more steps, or ``None``.

        The snapshots do, but they do not change the training.
        """
        return depends_on_all_steps(self.optimizer.schedule)


_PAPER = Config(
    dim=20,
    num_points=41,
    width=256,
    num_layers=12,
    num_heads=8,
    steps=500_001,
    batch_size=64,
    optimizer=OptimizerConfig("adam", 1e-4),
    curriculum=Curriculum(Ramp(5, 20, 1, 2000), Ramp(11, 41, 2, 2000)),
    # The published run used TF32, PyTorch's default at that time.
    precision="tf32",
    chunk_steps=1000,
    checkpoint_every=50_000,
)


def _small(task: str, dim: int, steps: int, **sizes: int) -> Config:
    """Returns the model and recipe of the preset cpu for another family."""
    linear = Config(
        dim=dim,
        num_points=2 * dim + 1,
        width=64,
        num_layers=3,
        num_heads=4,
        init_std=0.1,
        steps=steps,
        batch_size=64,
        optimizer=GPT2_CPU.optimizer,
        curriculum=Curriculum.none(dim, 2 * dim + 1),
        family=FamilySizes(**sizes),
    )
    return linear.of_task(task)


PRESETS = {
    "cpu": Config(
        dim=5,
        num_points=11,
        width=64,
        num_layers=3,
        num_heads=4,
        # 0.02 is Garg's value at width 256; narrow models train faster from larger
        # weights.
        init_std=0.1,
        steps=3500,
        batch_size=64,
        optimizer=GPT2_CPU.optimizer,
        curriculum=Curriculum.none(5, 11),
    ),
    "gpu": dataclasses.replace(
        _PAPER,
        steps=6500,
        batch_size=256,
        targets="posterior",
        optimizer=OptimizerConfig(
            "muon", 2e-3, schedule="cosine", warmup_steps=271, clip_norm=1.0
        ),
        curriculum=Curriculum(Ramp(5, 20, 1, 54), Ramp(11, 41, 2, 54)),
        precision="bfloat16",
        chunk_steps=250,
        checkpoint_every=2000,
    ),
    "paper": _PAPER,
    # In so few steps, training needs a sparsity and depth below the published 3 and 4.
    "sparse": _small("sparse", dim=5, steps=6000, sparsity=1),
    "relu_network": _small("relu_network", dim=5, steps=2500),
    "decision_tree": _small("decision_tree", dim=5, steps=3000, depth=3),
    # The published dimension, for a short training on two cores. The shorter curriculum
    # and posterior targets were chosen by short trials of the same seed.
    "d20": dataclasses.replace(
        _PAPER,
        width=128,
        num_layers=6,
        num_heads=4,
        init_std=0.05,
        steps=9000,
        batch_size=32,
        targets="posterior",
        optimizer=OptimizerConfig(
            "muon",
            4e-3,
            adam_learning_rate=2e-3,
            schedule="cosine",
            warmup_steps=300,
            clip_norm=1.0,
        ),
        curriculum=Curriculum(Ramp(5, 20, 1, 150), Ramp(11, 41, 2, 150)),
        precision="float32",
        snapshots=(0.25, 0.5, 0.75, 1.0),
        chunk_steps=50,
    ),
}
# Measured times, the last three on busy cores; the preset paper has not been run yet.
TIMES = {
    "cpu": "1 to 1.5 min, 2 cores",
    "gpu": "2.6 min with compiling, H100",
    "d20": "30 to 70 min, 2 cores",
    "sparse": "4 to 5 min, 2 cores",
    "relu_network": "4 to 7 min, 2 cores",
    "decision_tree": "4 to 7 min, 2 cores",
}


@dataclasses.dataclass(frozen=True)
class Setup:
    """Model, task, optimiser and mesh of a config."""

    config: Config
    family: Family
    model: GPT2
    task: Any
    optimizer: Any
    mesh: Any


def set_up(config: Config, devices: int | None) -> Setup:
    """Builds model, task, optimiser and mesh of a config."""
    # In bfloat16 models only the optimiser has float32 products, for which TF32
    # suffices.
    products = "highest" if config.precision == "float32" else "tensorfloat32"
    jax.config.update("jax_default_matmul_precision", products)
    model = GPT2(
        dim=config.dim,
        # Garg's position table has 101 points for any prompt; a small run needs fewer.
        num_positions=202 if config.dim == 20 else 2 * config.num_points,
        width=config.width,
        num_layers=config.num_layers,
        num_heads=config.num_heads,
        mlp=config.mlp,
        init_std=config.init_std,
        token_layout=config.token_layout,
        dtype=jnp.bfloat16 if config.precision == "bfloat16" else jnp.float32,
    )
    family = FAMILIES[config.task]
    optimizer = training.make_optimizer(config.optimizer, config.steps)
    mesh = training.device_mesh(devices)
    mesh = mesh if mesh.size > 1 else None
    return Setup(config, family, model, family.task(config), optimizer, mesh)
