"""Trains every setting and evaluates it at several steps."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments._frame.run import Run
from experiments._trained import Fitted, Timing, fit
from experiments.garg_recipe.changes import TrainingSetting
from experiments.garg_recipe.config import Config
from icltheory import training
from icltheory.regression.prompts import PrefixPrompt


@dataclasses.dataclass(frozen=True)
class TrainedWithChange:
    """A trained setting with its measured errors.

    Attributes:
        prompts: Prompts seen at each point of its curve, (points,).
        errors: Mean squared error / d by seed and prefix, (points, seeds, P); NaN from
            divergence on.
        excess: Mean squared distance to the posterior mean / d over prefixes, (points,
            seeds).
        params: Weights at the end, with an axis of seeds.
        timing: Wall time.
    """

    prompts: np.ndarray
    errors: np.ndarray
    excess: np.ndarray
    params: Any
    timing: Timing


def train(config: Config, run: Run) -> dict[str, TrainedWithChange]:
    """Trains all settings one after the other, or resumes an interrupted run."""
    prompt = evaluation_prompt(config)
    bayes = bayes_answers(config, prompt)
    records: list[dict[str, Any]] = []
    out = {}
    for name, setting in config.settings().items():
        chunk = -(-setting.steps // config.points)
        fitted = fit(
            config.phases(setting),
            config.start(setting),
            run,
            functools.partial(_record, config, name, setting, prompt, bayes),
            folder=run.folder / "checkpoints" / name,
            num_steps=setting.steps,
            chunk_steps=chunk,
            checkpoint_every=chunk,
            config=dataclasses.asdict(config),
            earlier=records,
            label=name,
        )
        records = [*records, *fitted.records]
        out[name] = _trained(fitted)
    return out


def evaluation_prompt(config: Config) -> PrefixPrompt:
    """Draws the evaluation prompts, held out and the same for all settings."""
    key = training.stream_key(config.seeds[0], "evaluation")
    sample = config.task().sample(key, config.num_points - 1, config.eval_prompts)
    return sample.prefixes()


def bayes_answers(config: Config, prompt: PrefixPrompt) -> jax.Array:
    """Posterior means for the evaluation prompts, (prompts, P)."""
    return jax.jit(functools.partial(training.bayes_targets, config.task()))(
        prompt.X, prompt.y
    )


def _record(
    config: Config,
    name: str,
    setting: TrainingSetting,
    prompt: PrefixPrompt,
    bayes: jax.Array,
    done: int,
    chunk: training.Chunk,
) -> dict[str, Any]:
    params = training.averaged(chunk.state)
    # Evaluation is in float32 for any training precision, since it is about the
    # weights.
    with jax.default_matmul_precision("highest"):
        errors, excess = _scores(config.model(setting), params, prompt, bayes)
    losses = np.asarray(chunk.metrics["loss"], np.float64).mean(axis=0)
    fallen = np.asarray(chunk.state.diverged_at) >= 0
    return {
        "setting": name,
        "step": done,
        "prompts": done * setting.batch_size,
        "loss": [0.0 if out else x for x, out in zip(losses, fallen, strict=True)],
        "diverged": fallen.tolist(),
        "errors": (np.asarray(errors, np.float64) / config.dim).tolist(),
        "excess": (np.asarray(excess, np.float64) / config.dim).tolist(),
    }


@functools.partial(jax.jit, static_argnums=0)
def _scores(model: Any, params: Any, prompt: PrefixPrompt, bayes: jax.Array) -> Any:
    """Errors by seed and prefix, and distances to the posterior mean by seed."""

    def one(params):
        answers = model.apply({"params": params}, prompt.X, prompt.y)
        errors = jnp.square(answers - prompt.y_query).mean(axis=0)
        return errors, jnp.square(answers - bayes).mean()

    return jax.lax.map(one, params)


def _trained(fitted: Fitted) -> TrainedWithChange:
    records = fitted.records
    diverged = np.array([line["diverged"] for line in records])
    errors = np.array([line["errors"] for line in records])
    excess = np.array([line["excess"] for line in records])
    errors[diverged] = excess[diverged] = np.nan
    prompts = np.array([line["prompts"] for line in records])
    params = training.averaged(fitted.state)
    return TrainedWithChange(prompts, errors, excess, params, fitted.timing)
