"""Analyses the errors of pruned models: tests, depth, shots and spectra."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.stats

from experiments.prune_icl.algorithm import ChosenPruning, choices, condition_numbers
from experiments.prune_icl.config import Config
from experiments.prune_icl.measure import (
    errors_of,
    grid_answers,
    kept_shares,
    magnitude_answers,
    plain_answers,
)
from experiments.prune_icl.subjects import (
    CONDITIONS,
    PrunedSubject,
    Questions,
    questions,
)
from icltheory import pruning
from icltheory.batching import Progress
from icltheory.statistics import Estimate, adjust_holm


@dataclasses.dataclass(frozen=True)
class PruningMeasurements:
    """All measurements of one subject.

    Attributes:
        subject: The model.
        asked: The prompts of all conditions.
        errors: Errors of all seeds after clipping modules, (seeds, layers, modules,
            rates, prompts, shots).
        single: Those of the first seed after clipping one matrix, on standard prompts,
            (layers, matrices, rates, prompts, shots).
        magnitude: Those of the first seed after magnitude pruning, for each module
            but ``all``, (layers, rates, prompts, shots).
        plain: Unpruned errors of the first seed by a plain forward pass.
        choices: What Algorithm 1 and the exhaustive search chose.
    """

    subject: PrunedSubject
    asked: Questions
    errors: np.ndarray
    single: np.ndarray
    magnitude: dict[str, np.ndarray]
    plain: np.ndarray
    choices: list[ChosenPruning]

    def at(self, condition: str, shot: int = -1, part: str = "test") -> np.ndarray:
        """Errors on one set of prompts at one number of shots."""
        return self.errors[..., self.asked.parts[condition, part], shot]

    def unpruned(self, condition: str, shot: int = -1) -> np.ndarray:
        """Errors of the unpruned models, (seeds, prompts)."""
        return self.at(condition, shot)[:, 0, 0, 0]


def measure(
    subject: PrunedSubject, config: Config, progress: Progress | None = None
) -> PruningMeasurements:
    """Runs all pruning sweeps of one subject."""
    asked = questions(subject, config)
    standard = questions(subject, config, CONDITIONS[:1])

    def errors_at(answers, prompts=asked):
        numbers = subject.recipe.dim, config.error_cap
        return errors_of(answers, prompts.targets, *numbers)

    errors, chosen = [], []
    for seed in range(len(subject.params)):
        answers = grid_answers(subject, asked, seed, subject.modules, progress)
        errors.append(errors_at(answers))
        for condition in CONDITIONS:
            found = choices(subject, config, asked, answers[..., -1], condition, seed)
            chosen += found
    groups = [m for m in subject.modules if m != "all"]
    magnitude = {m: magnitude_answers(subject, standard, 0, m) for m in groups}
    return PruningMeasurements(
        subject,
        asked,
        np.stack(errors),
        errors_at(grid_answers(subject, standard, 0, subject.matrices), standard),
        {m: errors_at(answers, standard) for m, answers in magnitude.items()},
        errors_at(plain_answers(subject, asked, 0)),
        chosen,
    )


def weights_unchanged(subject: PrunedSubject) -> float:
    """Largest change of any weight by clipping at rate 0."""

    @jax.jit
    def largest(params):
        found = []
        for layer in subject.layers:
            new = pruning.prune_module(subject.model, params, layer, "all", 0.0)
            change = jax.tree.map(lambda a, b: abs(a - b).max(), new, params)
            found += jax.tree.leaves(change)
        return jnp.max(jnp.stack(found))

    return float(largest(subject.params[0]))


def improvements(
    measured: PruningMeasurements, config: Config, condition: str
) -> dict[str, Any]:
    """Number of pruned models that are significantly better than unpruned, on test.

    Each (seed, layer, module, rate) has a paired one-sided test, with Holm's correction
    over all of them.
    """
    errors = measured.at(condition)
    difference = errors - errors[:, :1, :1, :1]
    tests = Estimate.of(np.asarray(difference[:, :, :, 1:]), axis=-1)
    p_better, alpha = tests.p_value("less"), 1 - config.level
    survivors = adjust_holm(p_better) <= alpha
    scale = errors[:, 0, 0, 0].mean(axis=-1)[:, None, None, None]
    relative = tests.mean / scale
    best = np.unravel_index(np.argmin(relative), relative.shape)
    subject = measured.subject
    return {
        "family": int(p_better.size),
        "better on average": int((tests.mean < 0).sum()),
        "p below the level": int((p_better < alpha).sum()),
        "after Holm": int(survivors.sum()),
        "best relative change": float(relative[best]),
        "best relative interval": [
            float((limit / scale)[best]) for limit in tests.interval(config.level)
        ],
        "best after Holm": bool(survivors[best]),
        "best": {
            "seed": subject.recipe.seeds[best[0]],
            "layer": int(best[1]),
            "module": subject.modules[best[2]],
            "rank": subject.ranks[best[3] + 1],
        },
        "best relative change after Holm": (
            float(relative[survivors].min()) if survivors.any() else None
        ),
    }


def inflation(measured: PruningMeasurements, shot: int = -1) -> np.ndarray:
    """log10 of the pruned over the unpruned error, (seeds, layers, modules, rates)."""
    mean = measured.at("standard", shot).mean(axis=-1, dtype=np.float64)
    return np.log10(mean / mean[:, :1, :1, :1])


def depth_effect(measured: PruningMeasurements, module: int) -> dict[str, Any]:
    """Mean |log10 inflation| of the first and last layer over rates >= 0.5."""
    severe = [i for i, rate in enumerate(measured.subject.rates) if rate >= 0.5]
    size = np.abs(inflation(measured)[:, :, module][:, :, severe]).mean(axis=-1)
    return {
        "shallow": size[:, 0].tolist(),
        "deep": size[:, -1].tolist(),
        "by layer": size.mean(axis=0).tolist(),
    }


def shot_effect(measured: PruningMeasurements, module: int) -> dict[str, float]:
    """log10 inflation of the first layer over rates >= 0.5, by number of shots."""
    severe = [i for i, rate in enumerate(measured.subject.rates) if rate >= 0.5]
    return {
        str(shots): float(
            inflation(measured, shot=place)[:, 0, module][:, severe].mean()
        )
        for place, shots in enumerate(measured.subject.shots)
    }


def spectra(measured: PruningMeasurements) -> list[dict[str, Any]]:
    """Condition number, its ratio to noise, and ranks of every matrix and seed."""
    subject = measured.subject
    return [
        {
            "seed": subject.recipe.seeds[seed],
            "layer": record.layer,
            "matrix": record.name,
            "shape": list(record.shape),
            "condition_number": record.condition_number,
            "null_ratio": record.null_ratio,
            "effective_rank": record.effective_rank,
            "stable_rank": record.stable_rank,
        }
        for seed, params in enumerate(subject.params)
        for record in pruning.module_spectra(subject.model, params)
    ]


def condition_by_depth(measured: PruningMeasurements, level: float) -> dict[str, float]:
    """Ratio of the last layer's condition number to the first layer's.

    The geometric mean over seeds and matrices, with its interval over seeds, as the
    matrices of one training are not independent. A matrix is compared with that of the
    same name, so the random-matrix null cancels.
    """
    subject = measured.subject
    logs = np.log([condition_numbers(subject, s) for s in range(len(subject.params))])
    change = Estimate.of((logs[:, -1] - logs[:, 0]).mean(axis=-1))
    values = (change.mean, *change.interval(level))
    names = ("ratio", "low", "high")
    return {n: float(np.exp(v)) for n, v in zip(names, values, strict=True)}


def inflation_against_condition(measured: PruningMeasurements) -> dict[str, float]:
    """Spearman correlation of condition numbers with the error after pruning.

    Over layers and single matrices of the first seed; the harm is the mean log10
    inflation over rates >= 0.5. Algorithm 1 hopes for a negative number.
    """
    severe = [i for i, rate in enumerate(measured.subject.rates) if rate >= 0.5]
    mean = measured.single[..., -1].mean(axis=-1, dtype=np.float64)
    harm = np.log10(mean / mean[:1, :1, :1])[..., severe].mean(axis=-1)
    condition = np.array(condition_numbers(measured.subject, 0))
    found = scipy.stats.spearmanr(condition.ravel(), harm.ravel())
    return {"correlation": float(found.statistic), "p": float(found.pvalue)}


def magnitude_depth(measured: PruningMeasurements, module: str) -> tuple[float, float]:
    """Mean log10 inflation of the first and last layer by magnitude pruning."""
    mean = measured.magnitude[module][..., -1].mean(axis=-1, dtype=np.float64)
    severe = [i for i, rate in enumerate(measured.subject.rates) if rate >= 0.5]
    size = np.log10(mean / mean[:1, :1])[:, severe].mean(axis=-1)
    return float(size[0]), float(size[-1])


def kept_table(measured: PruningMeasurements, module: str) -> list[float]:
    """Shares of parameters kept at each rate, for comparison with magnitude pruning."""
    return kept_shares(measured.subject, module)
