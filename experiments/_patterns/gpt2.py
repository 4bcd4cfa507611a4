"""GPT-2 on prompts of patterns: its task and its training."""

import dataclasses
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from experiments._frame.extend import depends_on_all_steps
from experiments._frame.fields import check_at_least
from experiments._frame.run import Run
from experiments._patterns.ensemble import TrainedEnsemble
from experiments._trained import Timing, fit
from experiments._trained.fit import mean_metrics
from icltheory import training
from icltheory.models import GPT2
from icltheory.patterns import PatternPrompt, PatternTask
from icltheory.training import Curriculum, OptimizerConfig, make_optimizer


@dataclasses.dataclass(frozen=True)
class Gpt:
    """Sizes and training of a GPT-2 that reads (x, y) pairs, with the hinge loss.

    Attributes:
        width: Width.
        num_layers: Layers.
        num_heads: Heads.
        init_std: Standard deviation of the initial weights.
        steps: Training steps.
        batch_size: Prompts a step.
        optimizer: Update rule and its schedule.
        loss_points: Whether the query alone counts, or every context before it too.
        chunk_steps: Steps a dispatch, and a line of metrics.jsonl.
        checkpoint_every: Steps between checkpoints.
    """

    width: int = 32
    num_layers: int = 3
    num_heads: int = 2
    init_std: float = 0.1
    steps: int = 200
    batch_size: int = 64
    optimizer: OptimizerConfig = OptimizerConfig(
        "adam", 3e-3, schedule="cosine", warmup_steps=100, clip_norm=1.0
    )
    loss_points: Literal["all", "last"] = "last"
    chunk_steps: int = 100
    checkpoint_every: int = 200

    def __post_init__(self):
        counts = ("width", "num_layers", "num_heads", "steps", "batch_size")
        check_at_least(self, 1, *counts, "chunk_steps", "checkpoint_every")
        if self.width % self.num_heads:
            raise ValueError(
                f"num_heads: expected a divisor of width {self.width}, "
                f"got {self.num_heads}"
            )
        make_optimizer(self.optimizer, self.steps)  # raises for invalid options

    def needs_all_steps(self) -> str | None:
        """Returns why the run cannot be extended by more steps, or ``None``."""
        return depends_on_all_steps(self.optimizer.schedule)


GPT_GPU = Gpt(width=128, num_layers=6, num_heads=4, init_std=0.05, steps=1000)
# The slides name GPT-2 without a size; this is the smallest published one.
GPT_PAPER = Gpt(
    width=768,
    num_layers=12,
    num_heads=12,
    init_std=0.02,
    steps=2000,
    batch_size=256,
    optimizer=OptimizerConfig(
        "adam", 1e-4, schedule="cosine", warmup_steps=200, clip_norm=1.0
    ),
)


class Pairs(NamedTuple):
    """Prompts as inputs and labels, the query last.

    Attributes:
        X: Features.
        y: Labels, the query's included.
    """

    X: Float[Array, "B P d"]
    y: Float[Array, "B P"]

    def points(self) -> tuple[Array, Array]:
        """Features and labels."""
        return self.X, self.y


@dataclasses.dataclass(frozen=True)
class PairTask:
    """A pattern task whose prompts are pairs (x, y), y = +1 or -1 for y q.

    Attributes:
        task: The task.
        relevant_fraction: alpha.
    """

    task: PatternTask
    relevant_fraction: float

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


@dataclasses.dataclass(frozen=True)
class TrainedGpt:
    """GPT-2 models of several seeds, trained on the same patterns.

    Attributes:
        module: The model.
        task: The task it was trained on.
        params: Parameters, stacked over the seeds.
        loss: Mean hinge loss of the last chunk, over the seeds.
        timing: Wall time.
    """

    module: GPT2
    task: PatternTask
    params: Any
    loss: float
    timing: Timing


def train_gpt(
    gpt: Gpt, seeds: Sequence[int], trained: TrainedEnsemble, run: Run
) -> TrainedGpt:
    """Trains GPT-2 on the patterns of the first one-layer model.

    Args:
        gpt: Its shape and its training.
        seeds: One training for each.
        trained: One-layer models; the first one's task is the task.
        run: Run folder; checkpoints are resumed from there.

    Returns:
        The models.
    """
    ensemble = trained.ensemble
    task, _ = trained.of_seed(0)
    P = ensemble.num_examples + 1
    module = GPT2(
        dim=task.dim,
        num_positions=P,
        width=gpt.width,
        num_layers=gpt.num_layers,
        num_heads=gpt.num_heads,
        token_layout="matrix",
        init_std=gpt.init_std,
    )
    asked = PairTask(task, ensemble.relevant_fraction)
    rule = training.make_optimizer(gpt.optimizer, gpt.steps)
    step = training.make_step(
        module,
        asked,
        rule,
        Curriculum.none(task.dim, P),
        batch_size=gpt.batch_size,
        num_points=P,
        loss_points=gpt.loss_points,
        loss="hinge",
    )
    fitted = fit(
        jax.vmap(step),
        training.init_state(module, asked, rule, seeds, num_points=P),
        run,
        lambda done, chunk: {
            "model": "gpt2",
            "step": done,
            **mean_metrics(chunk.metrics),
        },
        folder=run.folder / "checkpoints" / "gpt2",
        num_steps=gpt.steps,
        chunk_steps=gpt.chunk_steps,
        checkpoint_every=gpt.checkpoint_every,
        config=dataclasses.asdict(gpt),
        label="training gpt2",
    )
    loss = float(np.mean(fitted.records[-1]["loss"]))
    return TrainedGpt(module, task, fitted.state.params, loss, fitted.timing)
