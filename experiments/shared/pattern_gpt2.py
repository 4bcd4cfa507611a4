"""GPT-2 trained on the prompts of a pattern task, read as pairs (x, y)."""

import dataclasses
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from experiments import frame
from experiments.frame import check_at_least, expect
from experiments.shared.patterns import TrainedEnsemble
from experiments.shared.training import fit
from icltheory import training
from icltheory.models import GPT2
from icltheory.patterns import PatternPrompt, PatternTask
from icltheory.training import Curriculum, OptimizerConfig, make_optimizer


@dataclasses.dataclass(frozen=True)
class Gpt:
    """Sizes and training of a GPT-2 that reads (x, y) pairs, with the hinge loss."""

    width: int = 32  # width
    num_layers: int = 3  # layers
    num_heads: int = 2  # heads
    init_std: float = 0.1  # standard deviation of the initial weights
    steps: int = 200  # training steps
    batch_size: int = 64  # prompts per step
    # update rule and its schedule
    optimizer: OptimizerConfig = OptimizerConfig(
        "adam", 3e-3, schedule="cosine", warmup_steps=100, clip_norm=1.0
    )
    # whether the query alone counts, or every context before it too
    loss_points: Literal["all", "last"] = "last"
    chunk_steps: int = 100  # steps of a dispatch, and of a line of metrics.jsonl
    checkpoint_every: int = 200  # steps between checkpoints

    def __post_init__(self):
        counts = ("width", "num_layers", "num_heads", "steps", "batch_size")
        check_at_least(self, 1, *counts, "chunk_steps", "checkpoint_every")
        heads, whole = self.num_heads, self.width % self.num_heads == 0
        expect(whole, "num_heads", f"a divisor of width {self.width}", heads)
        make_optimizer(self.optimizer, self.steps)  # raises for invalid options

    def needs_all_steps(self) -> str | None:
        """Why the run cannot be extended by more steps, or ``None``."""
        return frame.depends_on_all_steps(self.optimizer.schedule)


GPT_GPU = Gpt(width=128, num_layers=6, num_heads=4, init_std=0.05, steps=1000)
# The slides name GPT-2 without a size; this is the smallest published one.
_SIZES: dict[str, Any] = {"width": 768, "num_layers": 12, "num_heads": 12}
_LONG: dict[str, Any] = {"init_std": 0.02, "steps": 2000, "batch_size": 256}
_WARM: dict[str, Any] = {"schedule": "cosine", "warmup_steps": 200, "clip_norm": 1.0}
GPT_PAPER = Gpt(**_SIZES, **_LONG, optimizer=OptimizerConfig("adam", 1e-4, **_WARM))


class Pairs(NamedTuple):
    """Prompts as features X (B, P, d) and labels y (B, P), the query last."""

    X: Array
    y: Array

    def points(self) -> tuple[Array, Array]:
        """Features and labels."""
        return self.X, self.y


@dataclasses.dataclass(frozen=True)
class PairTask:
    """A pattern task whose prompts are pairs (x, y), y = +1 or -1 for y q."""

    task: PatternTask
    relevant_fraction: float  # alpha

    @property
    def dim(self) -> int:
        """Dimension of the features."""
        return self.task.dim  # pyrefly: ignore

    def sample(
        self, key: Any, num_examples: int, num_prompts: int, *, active_dims: Any = None
    ) -> Pairs:
        """Draws a batch of prompts; ``active_dims`` is ignored."""
        asked = self.task.with_(relevant_fraction=self.relevant_fraction)
        return pairs(asked.sample(key, num_examples, num_prompts))


def pairs(prompt: PatternPrompt) -> Pairs:
    """Converts prompts to pairs with the query last."""
    X = jnp.concatenate([prompt.X, prompt.x_query[:, None]], axis=1)
    return Pairs(X, jnp.concatenate([prompt.y, prompt.z[:, None]], axis=1))


class TrainedGpt(NamedTuple):
    """GPT-2 models of several seeds, trained on the same patterns."""

    module: GPT2
    task: PatternTask
    params: Any  # stacked over the seeds
    loss: float  # mean hinge loss of the last chunk, over the seeds


def train_gpt(
    gpt: Gpt, seeds: Sequence[int], trained: TrainedEnsemble, run: frame.Run
) -> TrainedGpt:
    """Trains a GPT-2 per seed on the patterns of the first one-layer model."""
    ensemble, (task, _) = trained.ensemble, trained.of_seed(0)
    P = ensemble.num_examples + 1
    names = ("width", "num_layers", "num_heads", "init_std")
    shape = {name: getattr(gpt, name) for name in names}
    module = GPT2(dim=task.dim, num_positions=P, token_layout="matrix", **shape)
    asked = PairTask(task, ensemble.relevant_fraction)
    rule = make_optimizer(gpt.optimizer, gpt.steps)
    plan = Curriculum.none(task.dim, P)
    sizes: dict[str, Any] = {"batch_size": gpt.batch_size, "num_points": P}
    sizes |= {"loss_points": gpt.loss_points, "loss": "hinge"}
    step = training.make_step(module, asked, rule, plan, **sizes)
    start = training.init_state(module, asked, rule, seeds, num_points=P)
    fitted = fit(jax.vmap(step), start, run, gpt, name="gpt2", label="training gpt2")
    loss = float(np.mean(fitted.records[-1]["loss"]))
    return TrainedGpt(module, task, fitted.state.params, loss)
