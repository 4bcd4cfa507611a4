"""Reference evaluation: one prompt after another through the whole model."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from icltheory.bridge.evaluation.prompts import tokenize
from icltheory.bridge.evaluation.result import (
    Evaluation,
    evaluation_of,
    ties_are_wrong,
)
from icltheory.bridge.model import check_weights
from icltheory.bridge.tasks import LanguageTask

__all__ = ["evaluate_naive"]


def evaluate_naive(
    model: Any, task: LanguageTask, split: str = "validation", shots: int | None = None
) -> Evaluation:
    """Evaluates a split one prompt at a time, with all logits at all tokens.

    It is the reference for tests and timings of
    :func:`~icltheory.bridge.evaluation.evaluate`. Every prompt length is compiled.

    Source: Yao et al. (2024), section 4.
    """
    prompts = tokenize(model, task, split, shots)
    references = (
        None if prompts.reference is None else _measures(model, prompts.reference)
    )
    everything = np.arange(prompts.num_examples)
    scores = prompts.scores(_measures(model, prompts), everything, references)
    if np.isnan(scores).any():
        check_weights(model, tokens=False)
    how = {"ties_are_wrong": ties_are_wrong(task)}
    return evaluation_of(scores, prompts.labels, prompts.denominator, **how)


def _measures(model, prompts):
    found = []
    for row, start in zip(prompts.rows, prompts.starts, strict=True):
        ids = prompts.prefix + row
        logits = model.logits(np.array([ids]))[0]
        found.append(np.asarray(_measure(prompts, logits, ids, start)))
    return np.stack(found).reshape(prompts.num_examples, prompts.num_options)


def _measure(prompts, logits, ids, start):
    if prompts.measure == "label_token":
        return logits[-1, np.array(prompts.label_ids)]
    if prompts.measure == "mean_logit":
        return jnp.mean(logits)
    first = len(prompts.prefix) + start
    logp = jax.nn.log_softmax(logits[first - 1 : -1], axis=-1)
    return jnp.sum(logp[np.arange(len(ids) - first), np.array(ids[first:])])
