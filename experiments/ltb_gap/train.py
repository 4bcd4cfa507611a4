"""Trains LSAs and LTBs from random starts, all settings in one program."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from experiments._frame.run import Run
from experiments._trained.fit import fit
from experiments.ltb_gap.config import Config
from experiments.ltb_gap.settings import PopulationSetting, problem, trained_settings
from icltheory import regression as reg
from icltheory.regression import LinearPopulation
from icltheory.training import TrainState, stream_key

MODELS = {"lsa": reg.LSA, "ltb": reg.LTB}


@dataclasses.dataclass(frozen=True)
class TrainedBlocks:
    """Exact risks of the trained models by model and setting, one per seed."""

    risks: dict[str, dict[PopulationSetting, np.ndarray]]
    seconds: float


def train(config: Config, run: Run) -> TrainedBlocks:
    """Trains all models, or resumes an interrupted run."""
    settings = trained_settings(config)
    cases = [(setting, seed) for setting in settings for seed in config.seeds]
    width, length = max(s.dim for s in settings), max(s.num_examples for s in settings)
    tasks, M = _problems([setting for setting, _ in cases], width)
    seeds = jnp.asarray([seed for _, seed in cases], jnp.int32)
    optimizer = _optimizer(config)

    def start(seed):
        params = _random_start(stream_key(seed, "init"), width, config.init_std)
        step = jnp.zeros((), jnp.int32)
        return TrainState(step, seed, params, optimizer.init(params))

    def step(state):
        return jax.vmap(_step(config, optimizer, length))(state, tasks, M)

    def record(done, chunk):
        losses = np.asarray(chunk.metrics["loss"], np.float64).mean(axis=0)
        return {"step": done, "loss": losses.tolist()}

    fitted = fit(
        step,
        jax.jit(jax.vmap(start))(seeds),
        run,
        record,
        folder=run.folder / "checkpoints",
        num_steps=config.steps,
        chunk_steps=config.chunk_steps,
        checkpoint_every=config.checkpoint_every,
        config=dataclasses.asdict(config),
        label=f"training {2 * len(cases)} models",
    )
    with jax.enable_x64(True):
        tasks, M = _problems([setting for setting, _ in cases], width)
        risks = _risks(fitted.state.params, tasks, M)
    shape = (len(settings), len(config.seeds))
    return TrainedBlocks(
        {
            name: dict(zip(settings, values.reshape(shape), strict=True))
            for name, values in risks.items()
        },
        fitted.timing.train_seconds,
    )


def _optimizer(config: Config) -> optax.GradientTransformation:
    warm = config.steps // 20
    schedule = optax.warmup_cosine_decay_schedule(
        0.0, config.learning_rate, warm, config.steps, 0.0
    )
    return optax.chain(optax.clip_by_global_norm(1.0), optax.adam(schedule))


def _random_start(key: Array, width: int, std: float) -> dict[str, Any]:
    """Draws Gaussian weights of width d + 1; both models share the attention's."""
    n = width + 1
    weights = std * jax.random.normal(key, (6, n, n), jnp.float32)
    names = [field.name for field in dataclasses.fields(reg.LTB)]
    start = dict(zip(names, weights, strict=True))
    shared = {name: start[name] for name in ("W_K", "W_Q", "W_P", "W_V")}
    return {"lsa": shared, "ltb": start}


def _step(config: Config, optimizer: optax.GradientTransformation, length: int):
    """Returns the training step of one LSA and one LTB on the same prompts."""

    def loss(params, prompt, M):
        total = jnp.zeros(())
        for name, model in MODELS.items():
            parts = model(**params[name]).effective()
            # The rows beyond M are zero, but the model divides by all rows.
            factor = length / M
            parts = dataclasses.replace(parts, p=factor * parts.p, v=factor * parts.v)
            answers = parts.predict(prompt.X, prompt.y, prompt.x_query)
            total = total + jnp.mean((answers - prompt.y_query) ** 2)
        return total / jnp.mean(prompt.y_query**2)

    def step(state, task, M):
        key = jax.random.fold_in(stream_key(state.seed, "data"), state.step)
        prompt = task.sample(key, length, config.batch_size)
        seen = (jnp.arange(length) < M).astype(prompt.X.dtype)[None]
        prompt = dataclasses.replace(
            prompt, X=prompt.X * seen[..., None], y=prompt.y * seen
        )
        value, grads = jax.value_and_grad(loss)(state.params, prompt, M)
        updates, opt_state = optimizer.update(grads, state.opt_state, state.params)
        params = optax.apply_updates(state.params, updates)
        new = TrainState(state.step + 1, state.seed, params, opt_state)
        return new, {"loss": value}

    return step


def _problems(
    settings: list[PopulationSetting], width: int
) -> tuple[LinearPopulation, Array]:
    """Stacks all problems along a leading axis, with their numbers of examples."""
    columns = zip(*settings, strict=True)
    dim, M, norm, noise = (jnp.asarray(column) for column in columns)
    make = jax.vmap(functools.partial(problem, width=width))
    return jax.jit(make)(dim, norm, noise), M


def _risks(params: Any, tasks: LinearPopulation, M: Array) -> dict[str, np.ndarray]:
    """Computes exact risks in float64."""
    wide = jax.tree.map(lambda leaf: jnp.asarray(leaf, float), params)

    def risks(params, task, M):
        return {
            name: reg.risk(MODELS[name](**params[name]), task, M) for name in MODELS
        }

    found = jax.jit(jax.vmap(risks))(wide, tasks, M)
    return {name: np.asarray(values) for name, values in found.items()}
