"""Predictions and errors of pruned models, prompt by prompt."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments.prune_icl.subjects import PrunedSubject, Questions
from icltheory import pruning
from icltheory.batching import Progress
from icltheory.layered import forward, get_matrix


def gpt2_answers(outputs: Any, shots: Any) -> Any:
    """Predictions at the selected prefixes, (prompts, shots)."""
    return outputs[:, shots]


def stack_answers(outputs: Any, shots: Any) -> Any:
    """Predictions of a stack: minus the label slot of the query, (prompts, shots)."""
    return -outputs[:, -1].reshape(-1, len(shots))


def _score(subject: PrunedSubject):
    score = gpt2_answers if subject.recipe.model == "gpt2" else stack_answers
    return score, (jnp.asarray(subject.shots),)


def errors_of(answers: Any, targets: Any, dim: int, cap: float) -> np.ndarray:
    """Squared errors / d up to the cap, which also replaces non-finite errors."""
    with np.errstate(over="ignore", invalid="ignore"):
        errors = np.square(np.asarray(answers) - np.asarray(targets)) / dim
    return np.fmin(np.where(np.isnan(errors), cap, errors), cap)


def plain_answers(subject: PrunedSubject, asked: Questions, seed: int) -> np.ndarray:
    """Predictions of the unpruned model by a forward pass, (prompts, shots)."""
    score, args = _score(subject)

    @jax.jit
    def run(params, inputs, args):
        return score(forward(subject.model, params, inputs), *args)

    return np.asarray(run(subject.params[seed], asked.inputs, args))


def grid_answers(
    subject: PrunedSubject,
    asked: Questions,
    seed: int,
    modules: Sequence[str],
    progress: Progress | None = None,
) -> np.ndarray:
    """Predictions after clipping, (layers, modules, rates, prompts, shots)."""
    score, args = _score(subject)
    answers = pruning.sweep_grid(
        subject.model,
        subject.layers,
        modules,
        subject.rates,
        score,
        params=subject.params[seed],
        inputs=asked.inputs,
        score_args=args,
        progress=progress,
    )
    return np.asarray(answers)


def magnitude_answers(
    subject: PrunedSubject, asked: Questions, seed: int, module: str
) -> np.ndarray:
    """Predictions after magnitude pruning with as many parameters as each rank.

    Returns:
        ``(layers, rates, prompts, shots)``.
    """
    score, args = _score(subject)
    rates = [1 - share for share in kept_shares(subject, module)]
    answers = [
        pruning.sweep(
            subject.model,
            layer,
            module,
            rates,
            score,
            params=subject.params[seed],
            inputs=asked.inputs,
            score_args=args,
            method="magnitude",
        )
        for layer in subject.layers
    ]
    return np.stack([np.asarray(a) for a in answers])


def kept_shares(subject: PrunedSubject, module: str) -> list[float]:
    """Share of a module's parameters that each rank stores as two thin factors."""
    specs = pruning.module_matrices(subject.model, 0, module)
    shapes = [get_matrix(subject.params[0], spec).shape for spec in specs]
    sizes = sum(m * n for m, n in shapes)
    return [
        sum(
            pruning.kept_parameters(shape, pruning.rank_for_rate(shape, rate))
            for shape in shapes
        )
        / sizes
        for rate in subject.rates
    ]
