"""Measures errors of chain of thought and plain in-context learning over settings."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from experiments.cot.config import Config
from experiments.cot.settings import ReasoningSetting
from experiments.cot.train import ChainEnsemble
from icltheory import chain_of_thought as cot
from icltheory.batching import in_turns


class Errors(NamedTuple):
    """Errors of one setting, (seeds, lengths), averaged over draws and prompts.

    Attributes:
        mean: Chain of thought, share of the steps that are wrong.
        first: Its first step.
        final: Its last step.
        any: Whether any of its steps is wrong.
        direct: Plain in-context learning, or ``None`` where it was not asked.
    """

    mean: Any
    first: Any
    final: Any
    any: Any
    direct: Any


class SettingErrors(NamedTuple):
    """Errors of the trained models, and of attention that only counts votes."""

    trained: Errors
    counting: Errors


def measure(
    config: Config,
    ensemble: ChainEnsemble,
    settings: Sequence[ReasoningSetting],
    lengths: Sequence[int],
    prompts: int,
    direct: bool,
) -> list[SettingErrors]:
    """Measures all settings; settings of equal shape share one compiled program.

    Trained and counting models see the same prompts, and the prompts of all lengths
    begin with the same examples.
    """
    shapes = dict.fromkeys(setting.steps.shape for setting in settings)
    found: dict[int, SettingErrors] = {}
    for shape in shapes:
        own = [i for i, s in enumerate(settings) if s.steps.shape == shape]
        chosen = [settings[i] for i in own]
        program = _program(config, ensemble, chosen, own, lengths, prompts, direct)
        rows = _measure_shape(config, chosen, lengths, program)
        found |= dict(zip(own, rows, strict=True))
    return [found[i] for i in range(len(settings))]


def _measure_shape(config, settings, lengths, program) -> list[SettingErrors]:
    axes = (len(settings), 2, len(config.seeds), config.draws)
    grid = np.indices(axes).reshape(len(axes), -1).T
    found = jax.tree.map(
        lambda a: np.asarray(a, np.float64).reshape(*axes, len(lengths)).mean(axis=3),
        jax.device_get(program(jnp.asarray(grid))),
    )
    return [
        SettingErrors(
            *(jax.tree.map(lambda a, i=i, j=j: a[i, j], found) for j in range(2))
        )
        for i in range(len(settings))
    ]


def _program(config, ensemble, settings, numbers, lengths, prompts, direct):
    """Computes errors of all (setting, kind of model, seed, draw), (rows, lengths)."""
    alphabets = _alphabets(config, ensemble, settings[0].steps.shape[1])
    models = jax.tree.map(
        lambda a, b: jnp.stack([a, jnp.broadcast_to(b, a.shape)]),
        ensemble.models,
        cot.ReasoningAttention.matching(config.dim),
    )
    steps = jnp.asarray(np.stack([s.steps for s in settings]), models.W_K.dtype)
    fractions = jnp.asarray([s.fraction for s in settings], steps.dtype)
    numbers, limits = jnp.asarray(numbers), jnp.asarray(lengths)

    def row(place):
        setting, kind, seed, draw = place
        model = jax.tree.map(lambda leaf: leaf[kind, seed], models)
        alphabet = jax.tree.map(lambda leaf: leaf[seed, draw], alphabets)
        task = cot.ReasoningTask(steps[setting], fractions[setting], alphabet)
        key = jax.random.fold_in(ensemble.keys[seed], 1 + numbers[setting])
        drawn = task.sample(jax.random.fold_in(key, draw), int(lengths[-1]), prompts)
        return jax.lax.map(lambda limit: _errors(model, drawn, limit, direct), limits)

    return jax.jit(lambda places: in_turns(row, places, config.rows_at_once))


def _errors(model, prompts, limit, direct) -> Errors:
    def wrong(reasoner):
        return jax.vmap(lambda p: p.wrong(reasoner.answers(p, limit)))(prompts)

    chain = wrong(cot.ChainOfThought(model))
    parts = [chain, chain[:, 0], chain[:, -1], chain.any(axis=1)]
    if direct:
        parts.append(wrong(cot.DirectAnswer(model)))
    shares = [jnp.mean(part, dtype=jnp.float32) for part in parts]
    return Errors(*shares, *([] if direct else [None]))


def _alphabets(config, ensemble, num_states):
    """Draws test patterns, (seeds, draws)."""

    def one(alphabet, key):
        keys = jax.random.split(jax.random.fold_in(key, 0), config.draws)
        return jax.vmap(lambda k: alphabet.unseen(k, num_states))(keys)

    return jax.vmap(one)(ensemble.alphabets, ensemble.keys)


def needed_length(errors: np.ndarray, lengths: Sequence[int], level: float) -> float:
    """Interpolates the length at which the error falls below a level, else NaN.

    Linear in the logarithm of the error between two lengths.
    """
    errors = np.maximum(np.asarray(errors, float), 1e-12)
    below = np.flatnonzero(errors <= level)
    if not len(below) or below[0] == 0:
        return float("nan")
    i = below[0]
    logs = np.log(errors[i - 1 : i + 1])
    part = (logs[0] - np.log(level)) / (logs[0] - logs[1])
    return float(lengths[i - 1] + part * (lengths[i] - lengths[i - 1]))
