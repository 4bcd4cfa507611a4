r"""Evaluation of language models on tasks, unpruned and pruned.

``evaluate`` answers a split; ``evaluate_rates`` and ``evaluate_grid`` do so for many
pruned models in one pass. The demonstrations run once and are kept as keys and values,
questions run in batches of like length, what lies below the pruned layer is shared by
all rates, and all rates are one compiled program. ``evaluate_naive`` does the same one
prompt at a time and is what the others are tested against.

Beside tasks there are ``log_likelihoods`` of rows of tokens, the ``perplexity`` of a
text, and greedy ``generate_text`` with a cache of keys and values. Tasks whose answers
are free texts run in lm-evaluation-harness (:mod:`icltheory.bridge.harness`).

A ``Grid`` hands out scores batch by batch, to be recorded as they come.
"""

from icltheory.bridge.evaluation.batches import (
    Answers,
    Batch,
    Batches,
    padded_lengths,
)
from icltheory.bridge.evaluation.cached import (
    evaluate,
    evaluate_grid,
    evaluate_rates,
)
from icltheory.bridge.evaluation.generation import generate, generate_text
from icltheory.bridge.evaluation.grid import Grid, GridChunk
from icltheory.bridge.evaluation.likelihood import (
    Likelihoods,
    log_likelihoods,
    perplexity,
)
from icltheory.bridge.evaluation.naive import evaluate_naive
from icltheory.bridge.evaluation.prompts import Prompts, tokenize
from icltheory.bridge.evaluation.result import Evaluation, evaluation_of, predict

__all__ = [
    "Answers",
    "Batch",
    "Batches",
    "Evaluation",
    "Grid",
    "GridChunk",
    "Likelihoods",
    "Prompts",
    "evaluate",
    "evaluate_grid",
    "evaluate_naive",
    "evaluate_rates",
    "evaluation_of",
    "generate",
    "generate_text",
    "log_likelihoods",
    "padded_lengths",
    "perplexity",
    "predict",
    "tokenize",
]
