"""GPT-2 on the same prompts (Figures 12 and 13): the trainer's task, and its errors."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console

from experiments._patterns import Trained
from experiments._run import Run
from experiments._trained import Timing, fit
from experiments._trained.fit import mean_metrics
from experiments.pattern_icl.config import Config
from icltheory import training
from icltheory._pytree import pytree
from icltheory._typing import Array, Float
from icltheory.classification import PatternPrompt, PatternTask
from icltheory.models import GPT2
from icltheory.training import Curriculum


@pytree
class Pairs:
    """Prompts as the trainer reads them, the query last.

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
        """Width of the features."""
        return self.task.dim  # pyrefly: ignore

    def sample(
        self, key: Any, num_examples: int, batch_size: int, *, active_dims: Any = None
    ) -> Pairs:
        """Draws a batch; all coordinates are always active."""
        size = batch_size, num_examples, self.relevant_fraction
        return pairs(self.task.sample(key, *size))


def pairs(prompt: PatternPrompt) -> Pairs:
    """The pairs of prompts, the query last."""
    X = jnp.concatenate([prompt.X, prompt.x_query[:, None]], axis=1)
    return Pairs(X, jnp.concatenate([prompt.y, prompt.z[:, None]], axis=1))


@dataclasses.dataclass(frozen=True)
class TrainedGpt:
    """GPT-2 of several seeds on one draw of the patterns.

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
    config: Config, trained: Trained, run: Run, console: Console
) -> TrainedGpt:
    """Trains in the run folder, on the patterns of the first one-layer model."""
    gpt, ensemble = config.gpt, trained.ensemble
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
        *(module, asked, rule, Curriculum.none(task.dim, P)),
        batch_size=gpt.batch_size,
        num_points=P,
        loss_points=gpt.loss_points,
        loss="hinge",
    )
    fitted = fit(
        jax.vmap(step),
        training.init_state(module, asked, rule, config.gpt_seeds, num_points=P),
        run,
        console,
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


def margins_by_length(
    module: GPT2, params: Any, prompt: PatternPrompt
) -> Float[Array, "B l1"]:
    """Margins z F of the query after 0, 1, ..., l contexts, in one pass."""
    asked, P = pairs(prompt), prompt.num_examples + 1
    question = jnp.repeat(prompt.x_query[:, None], P, axis=1)
    answers: Any = module.apply({"params": params}, asked.X, asked.y, question)
    return answers * prompt.z[:, None]


@dataclasses.dataclass(frozen=True)
class GptErrors:
    """0-1 errors of GPT-2 after 0, 1, ..., l contexts.

    Attributes:
        sums: Against S_1, (sums, draws, seeds, l + 1).
        inside: Against alpha' on unseen tasks, (fractions, draws, seeds, l + 1).
        outside: Against alpha' at the reference S_1, of the same shape.
    """

    sums: np.ndarray
    inside: np.ndarray
    outside: np.ndarray


def gpt_errors(config: Config, trained: TrainedGpt) -> GptErrors:
    """Errors of all seeds on shared prompts; each sweep is one program."""
    task, length = trained.task, config.figures.num_examples
    alpha = config.figures.relevant_fraction
    key = training.stream_key(config.gpt_seeds[0], "evaluation")

    def of_all(prompt):
        def one(params):
            margins = margins_by_length(trained.module, params, prompt)
            return jnp.mean((margins <= 0).astype(jnp.float32), axis=0)

        return jax.lax.map(one, trained.params)

    def draw(S, alpha, own, shifted):
        first, second = jax.random.split(own)
        asked = task.out_of_domain(first, S) if shifted else task.held_out()
        return of_all(asked.sample(second, config.gpt_prompts, length, alpha))

    def table(shifted, sums, alphas):
        keys = jax.random.split(key, config.draws)

        def row(setting):
            S, alpha = setting
            return jax.lax.map(lambda own: draw(S, alpha, own, shifted), keys)

        settings = jnp.asarray(sums, jnp.float32), jnp.asarray(alphas, jnp.float32)
        return np.asarray(jax.jit(lambda s: jax.lax.map(row, s))(settings))

    fractions, several = config.fractions, config.gpt_sums
    one_sum = (config.reference_sum,) * len(fractions)
    shifts = several + one_sum, (alpha,) * len(several) + fractions
    outside = table(True, *shifts)
    inside = table(False, one_sum, fractions)
    return GptErrors(outside[: len(several)], inside, outside[len(several) :])
