"""Recipes of models on regression, and the loop that trains them in a run folder.

``train`` trains the model of a recipe, or continues where an interrupted run stopped;
``fit`` does so for any training step.
"""

import contextlib
import dataclasses
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import optax

from experiments import frame
from experiments.frame import check_at_least, expect
from icltheory import constructions, training
from icltheory.attention import LinearAttentionStack
from icltheory.layered import LayeredModel, LayeredStack
from icltheory.models import GPT2, LayeredGPT2, LinearStack
from icltheory.regression import LinearPopulation
from icltheory.training import Curriculum, OptimizerConfig

# --- the loop


@dataclasses.dataclass
class Timing:
    """Wall time of a training run, summed over its resumes."""

    steps: int = 0
    train_seconds: float = 0.0
    compile_seconds: float = 0.0

    @property
    def steps_per_second(self) -> float:
        """Steps per second without compilation; 0 before the first step."""
        return self.steps / self.train_seconds if self.train_seconds else 0.0


@dataclasses.dataclass(frozen=True)
class Fitted:
    """The result of a training run."""

    state: training.TrainState  # the last one
    snapshots: dict[int, Any]  # parameters at the steps asked for, in order
    records: list[dict[str, Any]]  # one a chunk
    timing: Timing


def fit(
    step: training.Step,
    state: Any,  # where to begin
    run: frame.Run,  # its metrics.jsonl gets one record a chunk
    recipe: Any,  # with steps in all, chunk_steps per dispatch and checkpoint_every
    record: Callable | None = None,  # of (steps, chunk): the line of metrics.jsonl
    *,
    name: str = "",  # folder below checkpoints, and "model" of each record
    config: Any = None,  # if not the recipe: kept beside checkpoints and compared
    snapshots: Sequence[int] = (),  # steps at whose end parameters are kept; 0: start
    earlier: Sequence[dict[str, Any]] = (),  # records before these in metrics.jsonl
    label: str = "training",  # what is shown while it trains
) -> Fitted:
    """Trains up to the last step, starting from the newest checkpoint if there is one.

    A signal such as Ctrl-C writes a checkpoint after the current chunk and interrupts.
    """
    num_steps, chunk_steps = recipe.steps, recipe.chunk_steps
    check_snapshots(snapshots, num_steps, chunk_steps)
    folder = run.folder / "checkpoints" / name
    kept_config = dataclasses.asdict(config or recipe)
    store = training.Checkpoints(folder)
    kept = {
        str(s): jax.tree.map(jnp.copy, state.params) for s in sorted(set(snapshots))
    }

    def means(done: int, chunk: training.Chunk) -> dict[str, Any]:
        known = {"model": name} if name else {}
        return known | {"step": done, **mean_metrics(chunk.metrics)}

    def saved() -> Any:
        return {"state": state, "snapshots": kept} if kept else state

    restored = store.restore(saved())
    for line in restored.damaged:
        run.warn(f"{line}; the one before it is used")
    records, timing = [], Timing()
    if restored.state is not None:
        _check_config(folder, restored.extra["config"], kept_config, run)
        found: Any = restored.state
        state, kept = (found["state"], found["snapshots"]) if kept else (found, kept)
        records, timing = restored.extra["metrics"], Timing(**restored.extra["timing"])
        run.console.print(f"resuming at step {int(np.max(state.step)):,}")
    run.extend()
    run.reset_metrics([*earlier, *records])
    done = int(np.max(state.step))
    with (
        run.progress(label, num_steps, done=done, unit="steps") as activity,
        _stopping(run) as interrupt,
    ):
        for chunk in training.run(
            step, state, num_steps, chunk_steps=chunk_steps, on_stage=activity.enter
        ):
            count = len(chunk.metrics["loss"])
            activity.advance(count)
            activity.enter("evaluating")
            state, done = chunk.state, done + count
            timing.steps += count
            timing.train_seconds += chunk.seconds
            timing.compile_seconds += chunk.compile_seconds
            if str(done) in kept:
                # The next chunk reuses the memory of this state.
                kept[str(done)] = jax.tree.map(jnp.copy, state.params)
            records.append((record or means)(done, chunk))
            run.log(records[-1])
            due = done == num_steps or done % recipe.checkpoint_every < chunk_steps
            if due or interrupt.asked:
                times = dataclasses.asdict(timing)
                extra = {"config": kept_config, "metrics": records, "timing": times}
                store.save(done, saved(), extra)
            if interrupt.asked:
                raise KeyboardInterrupt(interrupt.asked)
            loss = float(np.mean(records[-1]["loss"]))
            activity.shown = f"loss {loss:.3f}, {timing.steps_per_second:.0f} steps/s"
    steps = {int(name): params for name, params in kept.items()}
    return Fitted(state, steps, records, timing)


def clipped_adam(rate: float, steps: int) -> optax.GradientTransformation:
    """Adam with a warm-up of a twentieth of the steps and a cosine to 0, clipped."""
    schedule = optax.warmup_cosine_decay_schedule(0.0, rate, steps // 20, steps)
    return optax.chain(optax.clip_by_global_norm(1.0), optax.adam(schedule))


def drawn_states(draw: Callable, optimizer: Any, seeds: Sequence[int]) -> Any:
    """States at step 0, one a seed, with the parameters ``draw(key)``."""

    def one(seed):
        params = draw(training.stream_key(seed, "init"))
        step = jnp.zeros((), jnp.int32)
        return training.TrainState(step, seed, params, optimizer.init(params))

    return jax.jit(jax.vmap(one))(jnp.asarray(seeds, jnp.int32))


def descended(loss: Callable, optimizer: Any, state: Any, *data: Any) -> tuple:
    """The state after a step on ``loss(params, key, *data)``, and the loss."""
    key = jax.random.fold_in(training.stream_key(state.seed, "data"), state.step)
    value, grads = jax.value_and_grad(loss)(state.params, key, *data)
    updates, opt_state = optimizer.update(grads, state.opt_state, state.params)
    params = optax.apply_updates(state.params, updates)
    new = training.TrainState(state.step + 1, state.seed, params, opt_state)
    return new, {"loss": value}


def mean_metrics(metrics: dict[str, Any]) -> dict[str, list[float]]:
    """Returns the means of metrics over a chunk, as lists over the seeds."""
    return {
        name: np.atleast_1d(np.asarray(value, np.float64).mean(axis=0)).tolist()
        for name, value in metrics.items()
    }


def with_seeds(params: Any, seeds: Sequence[int]) -> Any:
    """Returns parameters with an axis of seeds, which those of a single seed lack."""
    if len(seeds) > 1:
        return params
    # NumPy arrays stay so: a checkpoint of several processes takes no array of JAX
    # that is on a device of one of them.
    return jax.tree.map(lambda leaf: leaf[None], params)


def check_snapshots(snapshots: Sequence[int], num_steps: int, chunk_steps: int) -> None:
    """Raises unless every snapshot is at the end of a chunk or at step 0."""
    expected = f"multiples of chunk_steps {chunk_steps} up to {num_steps}"
    for s in snapshots:
        ends = 0 <= s <= num_steps and (s % chunk_steps == 0 or s == num_steps)
        expect(ends, "snapshots", expected, s)


def _stopping(run: frame.Run) -> contextlib.AbstractContextManager[frame.Interrupt]:
    """Defers Ctrl-C in a single process; several could not agree on a step."""
    if jax.process_count() > 1:
        return contextlib.nullcontext(frame.Interrupt())
    return frame.deferred(run.console.print)


def _check_config(
    folder: Path, kept: dict[str, Any], config: dict[str, Any], run: frame.Run
) -> None:
    """Raises if a checkpoint has another config; newer fields may be absent."""
    names = differing(kept, json.loads(json.dumps(config)))
    if run.launch is not None and run.launch.extends:
        names = [name for name in names if name.rpartition(".")[2] != "steps"]
    if names:
        raise ValueError(
            f"checkpoints: expected those of this config in {folder}, got those of a "
            f"config that differs in {', '.join(names)}; start a new run"
        )


def differing(kept: dict[str, Any], asked: dict[str, Any], at: str = "") -> list[str]:
    """Names of the fields of a stored config that another one has not, or changes."""
    found = []
    for name, value in kept.items():
        other = asked.get(name)
        if isinstance(value, dict) and isinstance(other, dict):
            found += differing(value, other, f"{at}{name}.")
        elif name not in asked or value != other:
            found.append(f"{at}{name}")
    return found


# --- recipes


@dataclasses.dataclass(frozen=True)
class Recipe:
    """A model, a task x ~ N(0, I), w ~ N(m, I), y = <w, x> + noise, and a training."""

    model: Literal["gpt2", "linear"]  # GPT-2, or a stack of linear attention
    dim: int  # input dimension d
    num_points: int  # points of a prompt, the query included
    num_layers: int  # layers L
    steps: int  # training steps
    batch_size: int  # prompts per step
    optimizer: OptimizerConfig  # update rule and its schedule
    loss_points: Literal["all", "last"] = "all"  # all prefixes, or the last question
    width: int = 64  # GPT-2's width
    num_heads: int = 4  # GPT-2's heads
    mlp: bool = True  # whether GPT-2's blocks have their MLP
    # GPT-2's tokens: inputs and labels in turn, or one token per pair
    token_layout: Literal["interleaved", "matrix"] = "interleaved"
    # Of GPT-2: the initial weights. Of a linear stack: the Gaussian noise on the
    # weights of gradient descent at which it starts.
    init_std: float = 0.1
    step_size: float = 0.3  # of the gradient descent at which a linear stack starts
    noise_var: float = 0.0  # label noise in training
    task_mean: float = 0.0  # every coordinate of the prior mean m
    seeds: tuple[int, ...] = (0,)  # one run for each, side by side
    snapshots: tuple[int, ...] = ()  # steps at which parameters are kept, 0 the start
    chunk_steps: int = 100  # steps per dispatch, and per line of metrics.jsonl
    checkpoint_every: int = 1000  # steps between checkpoints

    def __post_init__(self):
        model = self.model
        expect(model in ("gpt2", "linear"), "model", "gpt2 or linear", model)
        counts = ("dim", "num_layers", "steps", "batch_size", "chunk_steps")
        check_at_least(self, 1, *counts, "checkpoint_every", "width", "num_heads")
        check_at_least(self, 2, "num_points")
        check_at_least(self, 0, "noise_var")
        expect(bool(self.seeds), "seeds", "at least one", "none")
        # This raises if the warm-up is longer than the training.
        training.learning_rate(self.optimizer, self.steps)

    def needs_all_steps(self) -> str | None:
        """Returns why the run cannot be extended by more steps, or ``None``."""
        return frame.depends_on_all_steps(self.optimizer.schedule)

    def task(self, noise_var: float | None = None) -> LinearPopulation:
        """Returns the regression task, in float32."""
        noise_var = self.noise_var if noise_var is None else noise_var
        task = LinearPopulation.isotropic(self.dim, noise_var, dtype=jnp.float32)
        mean = jnp.full(self.dim, self.task_mean, jnp.float32)
        return task.with_(task_mean=mean)

    def module(self) -> GPT2 | LinearStack:
        """Returns the model."""
        if self.model == "linear":
            N = self.num_points - 1
            return LinearStack(self.dim, self.num_layers, residual=True, num_examples=N)
        same = ("dim", "width", "num_layers", "num_heads", "mlp", "token_layout")
        sizes = {name: getattr(self, name) for name in (*same, "init_std")}
        return GPT2(num_positions=2 * self.num_points, **sizes)

    def transformation(self) -> Any:
        """Returns the optimiser."""
        return training.make_optimizer(self.optimizer, self.steps)

    def step_on(self, task: Any) -> training.Step:
        """Returns the training step of one seed on prompts of a task."""
        plan = Curriculum.none(self.dim, self.num_points)
        names = ("batch_size", "num_points", "loss_points")
        sizes: Any = {name: getattr(self, name) for name in names}
        given = self.module(), task, self.transformation(), plan
        return training.make_step(*given, **sizes)

    def step(self) -> training.Step:
        """Returns the training step of all seeds."""
        one = self.step_on(self.task())
        return jax.vmap(one) if len(self.seeds) > 1 else one

    def start(self) -> training.TrainState:
        """Returns the state at step 0, with an axis of seeds if there are several."""
        several = len(self.seeds) > 1
        optimizer = self.transformation()
        seeds = self.seeds if several else self.seeds[0]
        args = self.module(), self.task(), optimizer, seeds
        state = training.init_state(*args, num_points=self.num_points)
        if self.model == "gpt2":
            return state
        init = jax.vmap(optimizer.init) if several else optimizer.init
        near = jax.vmap(self._near_descent) if several else self._near_descent
        params = near(state.seed)
        return dataclasses.replace(state, params=params, opt_state=init(params))

    def _near_descent(self, seed: Any) -> dict[str, jax.Array]:
        """Draws initial weights near gradient descent, away from poor local minima."""
        steps = np.full(self.num_layers, self.step_size, np.float32)
        stack = constructions.gradient_descent(steps, self.dim)
        exact = {name: getattr(stack, name) for name in ("W_V", "W_K", "W_Q")}
        keys = jax.random.split(training.stream_key(seed, "init"), len(exact))

        for key, (name, W) in zip(keys, exact.items(), strict=True):
            noise = self.init_std * jax.random.normal(key, W.shape, jnp.float32)
            exact[name] = jnp.add(W, noise)
        return exact


# The training of the preset cpu of garg_linear, whose page has its error.
_MUON = OptimizerConfig("muon", 5e-3, 3e-3, "cosine", 200, clip_norm=1.0)
_SMALL: dict[str, Any] = {"num_layers": 3, "steps": 3500, "batch_size": 64}
GPT2_CPU = Recipe("gpt2", dim=5, num_points=11, **_SMALL, optimizer=_MUON)

# Twice the number of layers, width and dimension of the cpu recipe, for a GPU.
_MUON = OptimizerConfig("muon", 3e-3, 1e-3, "cosine", 200, clip_norm=1.0)
_LARGE: dict[str, Any] = {"dim": 10, "num_points": 21, "num_layers": 6, "width": 128}
_LONG: dict[str, Any] = {"steps": 20_000, "chunk_steps": 500, "checkpoint_every": 5000}
_LONG |= {"batch_size": 256, "init_std": 0.05, "optimizer": _MUON}
GPT2_GPU = dataclasses.replace(GPT2_CPU, **_LARGE, **_LONG)


def linear_recipe(num_layers: int, dim: int = 5, steps: int = 1500) -> Recipe:
    """Recipe of a linear attention stack on prompts of N = 4d examples."""
    rate = 1e-2 if num_layers == 1 else 5e-3 if num_layers < 6 else 3e-3
    warmup = {"schedule": "cosine", "warmup_steps": min(100, steps)}
    rule = OptimizerConfig("adam", rate, **warmup, clip_norm=1.0)
    sizes: Any = {"dim": dim, "num_points": 4 * dim + 1, "num_layers": num_layers}
    sizes |= {"steps": steps, "batch_size": 128}
    look: Any = {"loss_points": "last", "init_std": 0.05 if num_layers < 6 else 0.02}
    return Recipe("linear", **sizes, optimizer=rule, **look)


# --- models of recipes


@dataclasses.dataclass(frozen=True)
class TrainedModels:
    """Trained models of one recipe: module, parameters, snapshots and metrics."""

    name: str  # its name in the run folder
    recipe: Recipe
    module: Any  # of Flax: module.apply({"params": params}, X, y, X_query)
    params: Any  # with a leading axis of seeds, as the snapshots
    snapshots: dict[int, Any]  # parameters at the recipe's snapshots
    records: list[dict[str, Any]]  # step, loss and gradient norm (lists over the seeds)
    timing: Timing

    def of_seed(self, index: int, step: int | None = None) -> Any:
        """Returns one seed's parameters by its index, at the end or at a snapshot."""
        return _at(self.params if step is None else self.snapshots[step], index)

    def stack(self, index: int = 0, step: int | None = None) -> LinearAttentionStack:
        """Returns the weights of a linear stack as a ``LinearAttentionStack``."""
        model = self.recipe.model
        expect(model == "linear", "model", "linear", model)
        return LinearAttentionStack(**self.of_seed(index, step))

    def layered(self) -> tuple[LayeredModel, float]:
        """Returns the layered model, and the sign that makes its output a prediction.

        Its parameters are :meth:`stack` of a linear stack, :meth:`of_seed` of GPT-2.
        """
        if self.recipe.model == "gpt2":
            return LayeredGPT2(self.module), 1.0
        scale = 1.0 / (self.recipe.num_points - 1)
        return LayeredStack.of(self.stack(), scale=scale), -1.0


def train(
    recipe: Recipe,
    run: frame.Run,
    *,
    name: str = "",
    earlier: Sequence[dict[str, Any]] = (),
) -> TrainedModels:
    """Trains to the last step, or resumes from the newest checkpoint.

    Checkpoints are in ``checkpoints/NAME``, by default the recipe's kind, and hold the
    snapshots too. ``earlier`` are records of models that this run trained before.
    """
    jax.config.update("jax_default_matmul_precision", "highest")
    name = name or recipe.model
    more = {"snapshots": recipe.snapshots, "earlier": earlier}
    look = {"name": name, "label": f"training {name}", **more}
    fitted = fit(recipe.step(), recipe.start(), run, recipe, **look)
    kept = {s: with_seeds(p, recipe.seeds) for s, p in fitted.snapshots.items()}
    params = with_seeds(fitted.state.params, recipe.seeds)
    rest = kept, fitted.records, fitted.timing
    return TrainedModels(name, recipe, recipe.module(), params, *rest)


@jax.jit
def _at(params, index):
    return jax.tree.map(lambda leaf: leaf[index], params)
