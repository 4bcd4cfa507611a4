"""Effect of the number of training tasks on unseen tasks and shifted patterns."""

import dataclasses

import numpy as np

from experiments._patterns import (
    TrainedEnsemble,
    over_seeds,
    scores_at_sums,
    scores_on_all,
    train_ensemble,
)
from experiments.pattern_icl.config import Config
from icltheory.patterns import hinge, pattern_logits, task_ratio


@dataclasses.dataclass(frozen=True)
class Cover:
    """Results for one set of training tasks.

    Attributes:
        num_tasks: Its size.
        ratio: Its share of all tasks; Theorem 1 asks for (M1 - 1)^(-1/2).
        hinge: Hinge error on unseen tasks, or on all if none is left, (seeds,).
        shifted: Hinge error at the reference S_1, (seeds, draws).
        attention: Attention mass there, (seeds, draws).
        diagonal: Mean logit of a pattern with itself, (seeds,).
        off: Mean logit of two patterns, (seeds,).
        spread: Standard deviation of the logits of two patterns, (seeds,).
    """

    num_tasks: int
    ratio: float
    hinge: np.ndarray
    shifted: np.ndarray
    attention: np.ndarray
    diagonal: np.ndarray
    off: np.ndarray
    spread: np.ndarray


def coverage(config: Config, known: TrainedEnsemble) -> list[Cover]:
    """Trains and measures every set of training tasks; ``known`` is trained already."""
    found = []
    for size in config.covers:
        shifts = tuple(range(1, size + 1))
        ensemble = dataclasses.replace(known.ensemble, shifts=shifts)
        same = ensemble == known.ensemble
        found.append(_cover(config, known if same else train_ensemble(ensemble)))
    return found


def _cover(config: Config, trained: TrainedEnsemble) -> Cover:
    M, tasks = trained.ensemble.num_relevant, trained.tasks.tasks
    inside, unseen = (np.asarray(part) for part in _inside(trained, 2 * config.prompts))
    outside = scores_at_sums(
        trained, (config.reference_sum,), 2 * config.draws, config.prompts // 2
    )
    logits = over_seeds(lambda task, params: pattern_logits(params, task), trained)
    logits = np.asarray(logits)
    off = logits[:, ~np.eye(M, dtype=bool)]
    return Cover(
        len(tasks),
        float(task_ratio(tasks, M)),
        np.mean(inside, axis=1, where=unseen if unseen.any() else ~unseen),
        np.asarray(outside.hinge)[:, 0],
        np.asarray(outside.attention)[:, 0],
        np.diagonal(logits, axis1=1, axis2=2).mean(axis=1),
        off.mean(axis=1),
        off.std(axis=1),
    )


def _inside(trained: TrainedEnsemble, num_prompts: int):
    found, unseen = scores_on_all(trained, num_prompts)
    return hinge(found.margins), unseen
