"""Predictions of any in-context learner for many queries after one prompt."""

from collections.abc import Callable
from typing import Any

import jax

from icltheory._checks import check_shape
from icltheory._typing import Array
from icltheory.attention.stacks import AttentionStack
from icltheory.constructions import join_tokens, read_prediction

KINDS = (
    "a function of (X, y, x_query), an attention stack or a pair of a model with "
    "`predict` and its parameters"
)


def answers(predictor: Any, X: Array, y: Array, queries: Array) -> Array:
    """Predictions (B, Q) for queries (B, Q, d) after prompts (B, N, d), (B, N)."""
    if isinstance(predictor, AttentionStack):
        return _each(_read_stack(predictor), X, y, queries)
    if isinstance(predictor, tuple) and len(predictor) == 2:
        return _of_model(*predictor, X, y, queries)
    if not callable(predictor):
        kind = type(predictor).__name__
        raise ValueError(f"predictor: expected {KINDS}, got {kind}")
    one = [jax.ShapeDtypeStruct(a.shape[1:], a.dtype) for a in (X, y, queries[:, 0])]
    if _shape(predictor, one) == ():
        return _each(predictor, X, y, queries)
    return _batches(predictor, X, y, queries)


def _of_model(model, params, X, y, queries):
    """Predictions of a model with separate parameters, as in Flax."""
    if hasattr(model, "predict_queries"):
        return model.apply({"params": params}, X, y, queries, method="predict_queries")
    if not (hasattr(model, "predict") and hasattr(model, "apply")):
        raise ValueError(f"predictor: expected {KINDS}, got {type(model).__name__}")

    def predict(X, y, x_query):
        return model.apply({"params": params}, X, y, x_query, method="predict")

    return _batches(predict, X, y, queries)


def _read_stack(stack: AttentionStack) -> Callable[..., Array]:
    """Predictions of a stack: minus the query's label slot, with scale 1/N."""

    def predict(X, y, x_query):
        tokens = join_tokens(X, y[:, None], x_query)
        out = stack.apply(*tokens, scale=1 / X.shape[0])
        return read_prediction(out.h_query[-1], X.shape[1])[0]

    return predict


def _each(predict, X, y, queries):
    """Predictions of a function of one prompt for all queries."""
    of_prompt = jax.vmap(predict, (None, None, 0))
    return jax.vmap(of_prompt)(X, y, queries)


def _batches(predict, X, y, queries):
    """Predictions of a function of a batch of prompts for all queries."""

    def checked(x_query):
        found = predict(X, y, x_query)
        check_shape("predictions of predictor", found, y.shape[:1])
        return found

    return jax.vmap(checked, 1, 1)(queries)


def _shape(predict, arguments):
    """Returns a result's shape, or ``None`` if the function rejects the arguments."""
    try:
        return getattr(jax.eval_shape(predict, *arguments), "shape", None)
    except (TypeError, ValueError, IndexError):
        return None
