"""Predictors on one prompt or on a batch of them."""

import jax
import jax.numpy as jnp
import numpy as np


def answer(rule, *prompt):
    """Answers one query of each prompt: X, y, x_query."""
    call = jax.vmap(rule.predict) if np.ndim(prompt[0]) == 3 else rule.predict
    return call(*map(jnp.asarray, prompt))


def answers(rule, X, y, X_query=None):
    """Answers a query after every prefix of each prompt; the inputs by default."""
    prompt = map(jnp.asarray, (X, y, X if X_query is None else X_query))
    run = rule.predict_prefixes
    return (jax.vmap(run) if np.ndim(X) == 3 else run)(*prompt)
