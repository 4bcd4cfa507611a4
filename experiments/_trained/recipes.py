"""Tested recipes: a model, its task and its training."""

import dataclasses
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from experiments._frame.extend import depends_on_all_steps
from experiments._frame.fields import check_at_least
from icltheory import constructions, training
from icltheory.models import GPT2, LinearStack
from icltheory.regression import LinearPopulation
from icltheory.training import Curriculum, OptimizerConfig


@dataclasses.dataclass(frozen=True)
class Recipe:
    """A model, a task x ~ N(0, I), w ~ N(m, I), y = <w, x> + noise, and a training.

    Attributes:
        model: ``"gpt2"``, or ``"linear"`` for a :class:`LinearStack`.
        dim: Input dimension d.
        num_points: Points of a prompt, the query included.
        num_layers: Layers L.
        steps: Training steps.
        batch_size: Prompts a step.
        optimizer: Update rule and its schedule.
        loss_points: Whether all prefixes count, or the last question only.
        width: GPT-2's width.
        num_heads: GPT-2's heads.
        mlp: Whether GPT-2's blocks have their MLP.
        token_layout: GPT-2's tokens: inputs and labels in turn, or one token a pair.
        init_std: Of GPT-2: the initial weights. Of a linear stack: the Gaussian noise
            on the weights of gradient descent at which it starts.
        step_size: Step size of the gradient descent at which a linear stack starts.
        noise_var: Label noise in training.
        task_mean: Every coordinate of the prior mean m.
        seeds: One run for each, all in one program.
        snapshots: Steps at which parameters are kept; 0 is the start.
        chunk_steps: Steps a dispatch, and a line of metrics.jsonl.
        checkpoint_every: Steps between checkpoints.
    """

    model: Literal["gpt2", "linear"]
    dim: int
    num_points: int
    num_layers: int
    steps: int
    batch_size: int
    optimizer: OptimizerConfig
    loss_points: Literal["all", "last"] = "all"
    width: int = 64
    num_heads: int = 4
    mlp: bool = True
    token_layout: Literal["interleaved", "matrix"] = "interleaved"
    init_std: float = 0.1
    step_size: float = 0.3
    noise_var: float = 0.0
    task_mean: float = 0.0
    seeds: tuple[int, ...] = (0,)
    snapshots: tuple[int, ...] = ()
    chunk_steps: int = 100
    checkpoint_every: int = 1000

    def __post_init__(self):
        if self.model not in ("gpt2", "linear"):
            raise ValueError(f"model: expected gpt2 or linear, got {self.model}")
        counts = ("dim", "num_layers", "steps", "batch_size", "chunk_steps")
        check_at_least(self, 1, *counts, "checkpoint_every", "width", "num_heads")
        check_at_least(self, 2, "num_points")
        check_at_least(self, 0, "noise_var")
        if not self.seeds:
            raise ValueError("seeds: expected at least one, got none")
        # This raises if the warm-up is longer than the training.
        training.learning_rate(self.optimizer, self.steps)

    def needs_all_steps(self) -> str | None:
        """Returns why the run cannot be extended by more steps, or ``None``."""
        return depends_on_all_steps(self.optimizer.schedule)

    def task(self, noise_var: float | None = None) -> LinearPopulation:
        """Returns the regression task, in float32."""
        noise_var = self.noise_var if noise_var is None else noise_var
        task = LinearPopulation.isotropic(self.dim, noise_var, jnp.float32)
        mean = jnp.full(self.dim, self.task_mean, jnp.float32)
        return task.with_(task_mean=mean)

    def module(self) -> GPT2 | LinearStack:
        """Returns the model."""
        if self.model == "linear":
            N = self.num_points - 1
            return LinearStack(self.dim, self.num_layers, residual=True, num_examples=N)
        return GPT2(
            dim=self.dim,
            num_positions=2 * self.num_points,
            width=self.width,
            num_layers=self.num_layers,
            num_heads=self.num_heads,
            mlp=self.mlp,
            token_layout=self.token_layout,
            init_std=self.init_std,
        )

    def transformation(self) -> Any:
        """Returns the optimiser."""
        return training.make_optimizer(self.optimizer, self.steps)

    def step(self) -> training.Step:
        """Returns the training step of all seeds."""
        one = training.make_step(
            self.module(),
            self.task(),
            self.transformation(),
            Curriculum.none(self.dim, self.num_points),
            batch_size=self.batch_size,
            num_points=self.num_points,
            loss_points=self.loss_points,
        )
        return jax.vmap(one) if len(self.seeds) > 1 else one

    def start(self) -> training.TrainState:
        """Returns the state at step 0, with an axis of seeds if there are several."""
        several = len(self.seeds) > 1
        optimizer = self.transformation()
        state = training.init_state(
            self.module(),
            self.task(),
            optimizer,
            self.seeds if several else self.seeds[0],
            num_points=self.num_points,
        )
        if self.model == "gpt2":
            return state
        init = jax.vmap(optimizer.init) if several else optimizer.init
        near = jax.vmap(self._near_descent) if several else self._near_descent
        params = near(state.seed)
        return dataclasses.replace(state, params=params, opt_state=init(params))

    def _near_descent(self, seed) -> dict[str, jax.Array]:
        """Draws initial weights near gradient descent, away from poor local minima."""
        steps = np.full(self.num_layers, self.step_size, np.float32)
        stack = constructions.gradient_descent(steps, self.dim)
        exact = {"W_V": stack.W_V, "W_K": stack.W_K, "W_Q": stack.W_Q}
        keys = jax.random.split(training.stream_key(seed, "init"), len(exact))
        return {
            name: jnp.add(
                W, self.init_std * jax.random.normal(key, W.shape, jnp.float32)
            )
            for key, (name, W) in zip(keys, exact.items(), strict=True)
        }


# The training of the preset cpu of garg_linear, whose page has its error.
GPT2_CPU = Recipe(
    model="gpt2",
    dim=5,
    num_points=11,
    num_layers=3,
    steps=3500,
    batch_size=64,
    optimizer=OptimizerConfig(
        "muon",
        5e-3,
        adam_learning_rate=3e-3,
        schedule="cosine",
        warmup_steps=200,
        clip_norm=1.0,
    ),
)

# Twice the number of layers, width and dimension of the cpu recipe, for a GPU.
GPT2_GPU = dataclasses.replace(
    GPT2_CPU,
    dim=10,
    num_points=21,
    num_layers=6,
    width=128,
    init_std=0.05,
    steps=20_000,
    batch_size=256,
    optimizer=dataclasses.replace(
        GPT2_CPU.optimizer, learning_rate=3e-3, adam_learning_rate=1e-3
    ),
    chunk_steps=500,
    checkpoint_every=5000,
)


def linear_recipe(num_layers: int, dim: int = 5, steps: int = 1500) -> Recipe:
    """Recipe of a linear attention stack on prompts of N = 4d examples.

    Training takes seconds at d = 5. One layer ends at its exact optimum, error / d =
    0.231; deeper stacks end far below as many tuned steps of gradient descent, which
    :mod:`experiments.prune_icl` checks for four layers.
    """
    return Recipe(
        model="linear",
        dim=dim,
        num_points=4 * dim + 1,
        num_layers=num_layers,
        steps=steps,
        batch_size=128,
        optimizer=OptimizerConfig(
            "adam",
            1e-2 if num_layers == 1 else 5e-3 if num_layers < 6 else 3e-3,
            schedule="cosine",
            warmup_steps=min(100, steps),
            clip_norm=1.0,
        ),
        loss_points="last",
        init_std=0.05 if num_layers < 6 else 0.02,
    )
