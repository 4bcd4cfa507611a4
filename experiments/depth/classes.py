"""Trains gradient steps and GD++ on the risk given the inputs."""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from experiments.depth.config import Config
from experiments.depth.descent import descend

STEPS, PLUS = "gradient steps", "GD++"


class Steps(NamedTuple):
    """Step sizes of stacks whose layers act on the spectrum of the inputs.

    Attributes:
        labels: Steps eta of the label slot, (runs, L); zero beyond a run's layers.
        inputs: Steps gamma of the inputs, (runs, L).
    """

    labels: jax.Array
    inputs: jax.Array


def residual(steps: Steps, values: jax.Array) -> jax.Array:
    """Residual polynomial p(s) of each run at eigenvalues s; the error is p(S) w.

    Layer by layer p <- p (1 - eta s f^2) and f <- f (1 - gamma s f^2), from 1.

    Args:
        steps: Steps of all runs.
        values: Eigenvalues, (...).

    Returns:
        Values of p, (runs, ...).
    """

    def layer(state, sizes):
        f, p = state
        eta, gamma = (size.reshape(-1, *[1] * values.ndim) for size in sizes)
        a = values[None] * f**2
        return (f * (1 - gamma * a), p * (1 - eta * a)), None

    ones = jnp.ones((len(steps.labels), *values.shape), values.dtype)
    by_layer = jax.tree.map(lambda size: size.T, tuple(steps))
    (_, p), _ = jax.lax.scan(layer, (ones, ones), by_layer)
    return p


def train_classes(config: Config, dim: int, num_examples: int) -> dict[str, Steps]:
    """Trains stacks of every depth from the best of many random starts.

    The loss is the logarithm of tr p(S)^2 / d averaged over the inputs of a step: the
    risk, exact in task and query. A layer that a run does not have has steps of zero.

    Args:
        config: The config.
        dim: Dimension d.
        num_examples: Examples N.

    Returns:
        Steps of each class, ``(max_layers, starts, max_layers)`` each.
    """
    L, shape = config.max_layers, (num_examples, dim)
    has = np.arange(L) < np.arange(1, L + 1)[:, None, None]  # (depth, draw, layer)
    has = jnp.broadcast_to(jnp.asarray(has, float), (L, config.draws, L))
    key = jax.random.fold_in(jax.random.key(config.seed), dim * 1000 + num_examples)
    found = {}
    # Inputs that shrink from layer to layer require larger steps for the labels.
    for name, most_eta, most_gamma in ((STEPS, 1.2, 0.0), (PLUS, 4.0, 0.6)):
        kind = jax.random.fold_in(key, len(name))
        eta = jax.random.uniform(kind, has.shape, minval=0.3, maxval=most_eta)
        gamma = jax.random.uniform(jax.random.fold_in(kind, 1), has.shape) * most_gamma
        drawn = Steps(eta * has, gamma * has)
        # The risk has several local minima, and few random draws are near the best one.
        spectra = _spectra(jax.random.fold_in(kind, 2), config.batch_size, shape)
        start = _least(drawn, spectra, config.starts)
        own = has[:, : config.starts].reshape(-1, L)
        found[name] = jax.tree.map(
            lambda part: part.reshape(L, config.starts, L),
            _train(config, start, Steps(own, own * (most_gamma > 0)), kind, shape),
        )
    return found


def _spectra(key, batch, shape):
    """Draws eigenvalues of X^T X / N for a batch of inputs."""
    X = jax.random.normal(key, (batch, *shape))
    return jnp.linalg.eigvalsh(jnp.einsum("bni,bnj->bij", X, X) / shape[0])


@functools.partial(jax.jit, static_argnums=2)
def _least(drawn: Steps, values: jax.Array, count: int) -> Steps:
    """Selects the random starts of least risk for each depth."""

    def of_depth(steps):
        risks = jnp.mean(residual(steps, values) ** 2, axis=(1, 2))
        # Draws that diverge are excluded.
        order = jnp.argsort(jnp.where(jnp.isfinite(risks), risks, jnp.inf))[:count]
        return jax.tree.map(lambda part: part[order], steps)

    chosen = jax.lax.map(of_depth, drawn)
    return jax.tree.map(lambda part: part.reshape(-1, part.shape[-1]), chosen)


def _train(config: Config, start: Steps, free: Steps, key, shape) -> Steps:
    optimizer = optax.chain(
        optax.stateless(lambda gradient, _: jax.tree.map(jnp.multiply, gradient, free)),
        # Clipping limits the effect of steps on rare inputs; runs share no parameters.
        optax.clip(1.0),
        optax.adam(optax.cosine_decay_schedule(config.rate, config.steps)),
    )

    def loss(now, values):
        risks = jnp.mean(residual(now, values) ** 2, axis=(1, 2))
        return jnp.sum(jnp.log(risks))

    def draw(key):
        return _spectra(key, config.batch_size, shape)

    return descend(loss, draw, start, optimizer, config.steps, key)


def best_start(steps: Steps, key: jax.Array, dim: int, num_examples: int) -> Steps:
    """Returns the stack of one depth with the least risk on other inputs.

    Args:
        steps: Steps of every start, (starts, L).
        key: Key of the inputs.
        dim: Dimension d.
        num_examples: Examples N.

    Returns:
        Its steps, (1, L).
    """
    X = jax.random.normal(key, (8192, num_examples, dim))
    values = jnp.linalg.eigvalsh(jnp.einsum("bni,bnj->bij", X, X) / num_examples)
    p = residual(Steps(*(jnp.asarray(part) for part in steps)), values)
    best = int(np.nanargmin(np.asarray(jnp.mean(p**2, axis=(1, 2)))))
    return Steps(*(part[best : best + 1] for part in steps))
