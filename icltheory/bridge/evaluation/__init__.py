r"""Prompts, batches and scores of language models on tasks.

:class:`~icltheory.bridge.Evaluator` answers a split by many pruned models in one pass:
the demonstrations run once and are kept as keys and values, several questions stand in
a row, what lies below the pruned layer is shared by all strengths, and all strengths
are one compiled program. ``evaluate_naive`` does the same one prompt at a time and is
what the others are tested against.

Beside tasks there are ``log_likelihoods`` of rows of tokens and greedy
``generate_text`` with a cache of keys and values. Tasks whose answers are free texts,
and the perplexity of texts, run in lm-evaluation-harness
(:mod:`icltheory.bridge.harness`).
"""

from icltheory.bridge.evaluation.prompts import Prompts, tokenize
from icltheory.bridge.evaluation.result import (
    Evaluation,
    evaluate_naive,
    evaluation_of,
    predict,
)
from icltheory.bridge.evaluation.rows import (
    Likelihoods,
    generate,
    generate_text,
    log_likelihoods,
)

__all__ = [
    "Evaluation",
    "Likelihoods",
    "Prompts",
    "evaluate_naive",
    "evaluation_of",
    "generate",
    "generate_text",
    "log_likelihoods",
    "predict",
    "tokenize",
]
