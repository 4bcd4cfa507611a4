"""Config and presets of the experiment, and the objects built from them."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from experiments._frame.fields import check_at_least, check_seeds
from experiments.garg_recipe.changes import CHANGES, TrainingSetting, shortened
from icltheory import training
from icltheory.models import GPT2
from icltheory.regression import LinearPopulation
from icltheory.training import Curriculum, Ensemble, OptimizerConfig, Phase, Ramp


@dataclasses.dataclass(frozen=True)
class Config:
    """A baseline, single changes of it, and a recipe that combines some of them.

    Attributes:
        dim: Input dimension d.
        num_points: Points of a prompt.
        width: Width of the residual stream.
        num_layers: Blocks.
        num_heads: Attention heads.
        baseline: The recipe that is changed.
        changes: Names of changes, each made alone.
        recipe: Names of the changes that the recipe unites, in their order.
        seeds: The same for all, so that differences are of the recipes.
        points: Points of a curve over training, at equal distances.
        eval_prompts: Fresh prompts on which every model is measured.
    """

    dim: int
    num_points: int
    width: int
    num_layers: int
    num_heads: int
    baseline: TrainingSetting
    changes: tuple[str, ...] = tuple(name for name in CHANGES if name != "muon")
    recipe: tuple[str, ...] = ("rate-double", "trapezoid", "posterior")
    seeds: tuple[int, ...] = (0, 1, 2)
    points: int = 10
    eval_prompts: int = 2048

    def __post_init__(self):
        if self.num_points < 2 * self.dim + 1:
            raise ValueError(
                f"num_points: expected at least 2 dim + 1 = {2 * self.dim + 1}, "
                f"got {self.num_points}"
            )
        for field in ("changes", "recipe"):
            for name in getattr(self, field):
                if name not in CHANGES:
                    raise ValueError(
                        f"{field}: expected some of {', '.join(CHANGES)}, got {name}"
                    )
        check_seeds("seeds", self.seeds)
        check_at_least(self, 2, "points", "eval_prompts")
        for name, setting in self.settings().items():
            if setting.steps < 2 * self.points:
                raise ValueError(
                    f"baseline.steps: expected at least two steps per point of the "
                    f"curve, got {setting.steps} for {self.points} points of {name}"
                )

    def settings(self) -> dict[str, TrainingSetting]:
        """Settings to train: baseline, each change, recipe, and half the recipe."""
        united = self.baseline
        for name in self.recipe:
            united = CHANGES[name](united)
        return {
            "baseline": self.baseline,
            **{name: CHANGES[name](self.baseline) for name in self.changes},
            "recipe": united,
            "recipe, half": shortened(united, 0.5),
        }

    def task(self) -> LinearPopulation:
        """Garg's task without noise."""
        return LinearPopulation.isotropic(self.dim, dtype=jnp.float32)

    def model(self, setting: TrainingSetting, precision: str = "float32") -> GPT2:
        """The transformer of a setting."""
        return GPT2(
            dim=self.dim,
            num_positions=2 * self.num_points,
            width=self.width,
            num_layers=self.num_layers,
            num_heads=self.num_heads,
            init_std=setting.init_std,
            dtype=jnp.bfloat16 if precision == "bfloat16" else jnp.float32,
        )

    def curriculum(self, setting: TrainingSetting) -> Curriculum:
        """No curriculum, or Garg's, which starts at a quarter of the dimensions."""
        if not setting.curriculum_interval:
            return Curriculum.none(self.dim, self.num_points)
        start, every = max(self.dim // 4, 1), setting.curriculum_interval
        points = min(2 * start + 1, self.num_points)
        return Curriculum(
            Ramp(start, self.dim, 1, every), Ramp(points, self.num_points, 2, every)
        )

    def start(self, setting: TrainingSetting) -> training.EnsembleState:
        """State of all seeds at step 0."""
        return training.init_ensemble(
            self.model(setting),
            self.task(),
            setting.optimizer,
            Ensemble(self.seeds),
            num_steps=setting.steps,
            num_points=self.num_points,
        )

    def phases(self, setting: TrainingSetting) -> list[Phase]:
        """Training phases: in the setting's precision, then with float32 products."""
        first = round(setting.steps * (1 - setting.last_float32))
        parts = {first: setting.precision, setting.steps: "float32"}
        if not setting.last_float32:
            parts = {setting.steps: setting.precision}
        return [
            Phase(self._step(setting, precision), until)
            for until, precision in parts.items()
        ]

    def _step(self, setting: TrainingSetting, precision: str) -> training.Step:
        posterior = setting.targets == "posterior"
        step = training.make_ensemble_step(
            self.model(setting, precision),
            self.task(),
            setting.optimizer,
            Ensemble(self.seeds),
            self.curriculum(setting),
            num_steps=setting.steps,
            batch_size=setting.batch_size,
            num_points=self.num_points,
            targets=training.bayes_targets if posterior else None,
        )
        # In bfloat16 models only the optimiser has float32 products, for which TF32
        # suffices.
        products = "highest" if precision == "float32" else "tensorfloat32"

        def precise(state: Any) -> Any:
            with jax.default_matmul_precision(products):
                return step(state)

        return precise


_GARG: dict[str, Any] = {
    "dim": 20,
    "num_points": 41,
    "width": 256,
    "num_layers": 12,
    "num_heads": 8,
    "eval_prompts": 6400,
}

PRESETS = {
    "cpu": Config(
        dim=3,
        num_points=7,
        width=48,
        num_layers=3,
        num_heads=4,
        baseline=TrainingSetting(
            OptimizerConfig(
                "muon",
                5e-3,
                adam_learning_rate=3e-3,
                schedule="cosine",
                warmup_steps=100,
                clip_norm=1.0,
            ),
            steps=1500,
            batch_size=64,
            init_std=0.1,
        ),
    ),
    "gpu": Config(
        **_GARG,
        baseline=TrainingSetting(
            OptimizerConfig(
                "muon", 2e-3, schedule="cosine", warmup_steps=1000, clip_norm=1.0
            ),
            steps=24_000,
            batch_size=256,
            init_std=0.02,
            curriculum_interval=200,
            precision="bfloat16",
        ),
        changes=tuple(name for name in CHANGES if name not in ("muon", "bfloat16")),
    ),
    "paper": Config(
        **_GARG,
        baseline=TrainingSetting(
            OptimizerConfig("adam", 1e-4),
            steps=500_001,
            batch_size=64,
            init_std=0.02,
            curriculum_interval=2000,
        ),
        changes=(),
        recipe=("muon", "trapezoid", "posterior"),
    ),
}
# Measured times; the other presets have not been run yet.
TIMES = {"cpu": "14 to 27 min, 2 cores"}
