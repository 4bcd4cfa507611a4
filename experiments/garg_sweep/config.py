"""Config and presets of the experiment."""

import dataclasses
from typing import Any, Literal

import jax
import jax.numpy as jnp

from experiments._frame.fields import check_at_least, check_seeds
from experiments._trained import Recipe
from icltheory import training
from icltheory.models import GPT2
from icltheory.training import Curriculum, Ensemble, OptimizerConfig, Ramp


@dataclasses.dataclass(frozen=True)
class Config:
    """A grid of transformers on Garg's linear regression.

    Attributes:
        recipe: What all share: sizes, optimiser, seeds and lengths. Its width, learning
            rate and noise are those of the grid.
        widths: Widths of the residual stream, ascending; each is an ensemble.
        learning_rates: Peak learning rates, ascending.
        noise_vars: Variances of the label noise, in training and in what is measured.
        curriculum: Which coordinates and points count when.
        precision: Of the matrix products; parameters and sums stay float32.
        at_once: Members of an ensemble whose products are batched; 0 for what suits the
            device.
        eval_prompts: Fresh prompts on which every model is measured.
    """

    recipe: Recipe
    widths: tuple[int, ...]
    learning_rates: tuple[float, ...]
    noise_vars: tuple[float, ...]
    curriculum: Curriculum
    precision: Literal["float32", "tf32", "bfloat16"] = "float32"
    at_once: int = 0
    eval_prompts: int = 4096

    def __post_init__(self):
        recipe = self.recipe
        if (recipe.model, recipe.loss_points) != ("gpt2", "all"):
            raise ValueError(
                "recipe: expected model gpt2 and loss_points all, got "
                f"{recipe.model} and {recipe.loss_points}"
            )
        if recipe.task_mean or recipe.snapshots:
            raise ValueError(
                "recipe: expected task_mean 0 and no snapshots, got task_mean "
                f"{recipe.task_mean:g} and snapshots {recipe.snapshots}"
            )
        if recipe.num_points < 2 * recipe.dim + 1:
            raise ValueError(
                f"recipe.num_points: expected at least 2 dim + 1 = "
                f"{2 * recipe.dim + 1}, got {recipe.num_points}"
            )
        check_seeds("recipe.seeds", recipe.seeds)
        for name in ("widths", "learning_rates", "noise_vars"):
            values = getattr(self, name)
            if not values or sorted(set(values)) != list(values):
                raise ValueError(f"{name}: expected ascending values, got {values}")
        for name, full in (("dims", recipe.dim), ("points", recipe.num_points)):
            end = getattr(self.curriculum, name).end
            if end != full:
                raise ValueError(
                    f"curriculum.{name}.end: expected the full {full}, got {end}"
                )
        for width in self.widths:
            if width % recipe.num_heads:
                raise ValueError(
                    f"widths: expected multiples of {recipe.num_heads} heads, "
                    f"got {width}"
                )
        check_at_least(self, 0, "at_once")
        check_at_least(self, 2, "eval_prompts")
        self.ensemble()

    def ensemble(self) -> Ensemble:
        """Ensemble of one width; its axes are noise, rate and seed."""
        return Ensemble(self.recipe.seeds, self.noise_vars, self.learning_rates)

    def model(self, width: int) -> GPT2:
        """The transformer of a width."""
        module: Any = dataclasses.replace(self.recipe, width=width).module()
        bfloat16 = self.precision == "bfloat16"
        return module.clone(dtype=jnp.bfloat16 if bfloat16 else jnp.float32)

    def set_precision(self) -> None:
        """Sets JAX's default precision of matrix products."""
        products = "highest" if self.precision == "float32" else "tensorfloat32"
        jax.config.update("jax_default_matmul_precision", products)

    def counted(self) -> tuple[int, int, int]:
        """Numbers of examples k in the table: d / 2, d and 2d."""
        dim = self.recipe.dim
        return max(dim // 2, 1), dim, 2 * dim

    def parts(self) -> list[tuple[training.EnsembleState, training.Step]]:
        """Initial state and training step of every width's ensemble."""
        recipe, found = self.recipe, []
        sizes = {"num_steps": recipe.steps, "num_points": recipe.num_points}
        for width in self.widths:
            args = self.model(width), recipe.task(), recipe.optimizer, self.ensemble()
            step = training.make_ensemble_step(
                *args,
                self.curriculum,
                **sizes,
                batch_size=recipe.batch_size,
                at_once=self.at_once or None,
            )
            found.append((training.init_ensemble(*args, **sizes), step))
        return found


_PAPER = Recipe(
    model="gpt2",
    dim=20,
    num_points=41,
    num_layers=12,
    num_heads=8,
    init_std=0.02,
    steps=500_001,
    batch_size=64,
    optimizer=OptimizerConfig("adam", 1e-4),
    seeds=(0, 1),
    chunk_steps=1000,
    checkpoint_every=10_000,
)
_GARG = Curriculum(Ramp(5, 20, 1, 2000), Ramp(11, 41, 2, 2000))

PRESETS = {
    "cpu": Config(
        recipe=Recipe(
            model="gpt2",
            dim=2,
            num_points=5,
            num_layers=2,
            num_heads=4,
            # With one token per pair, two layers suffice for regression.
            token_layout="matrix",
            init_std=0.2,
            steps=600,
            batch_size=64,
            optimizer=OptimizerConfig(
                "adam", 1e-2, schedule="cosine", warmup_steps=50, clip_norm=1.0
            ),
            seeds=(0, 1, 2),
        ),
        widths=(16, 32),
        learning_rates=(1e-3, 1e-2, 1e-1),
        noise_vars=(0.0, 0.25),
        curriculum=Curriculum.none(2, 5),
    ),
    "gpu": Config(
        recipe=dataclasses.replace(
            _PAPER,
            steps=24_000,
            optimizer=OptimizerConfig(
                "muon",
                2e-3,
                adam_learning_rate=2e-3,
                schedule="cosine",
                warmup_steps=1000,
                clip_norm=1.0,
            ),
            chunk_steps=250,
            checkpoint_every=6000,
        ),
        widths=(64, 128, 256),
        learning_rates=(1e-3, 2e-3, 4e-3, 8e-3),
        noise_vars=(0.0, 0.25),
        curriculum=Curriculum(Ramp(5, 20, 1, 200), Ramp(11, 41, 2, 200)),
        precision="bfloat16",
        eval_prompts=6400,
    ),
    "paper": Config(
        recipe=_PAPER,
        widths=(64, 128, 256),
        learning_rates=(3e-5, 1e-4, 3e-4, 1e-3),
        noise_vars=(0.0, 1.0),
        curriculum=_GARG,
        precision="tf32",
        eval_prompts=6400,
    ),
}
# Measured times; the other presets have not been run yet.
TIMES = {"cpu": "1 min, 2 cores"}
