"""Tasks and prompts that NumPy draws, for tests of what is made of them."""

import jax
import jax.numpy as jnp
import numpy as np

from icltheory.patterns import PatternTask
from icltheory.patterns.task import PatternPrompt


def pattern_task(num_relevant, num_irrelevant, scale, label_dim, **more):
    """Orthogonal patterns of one norm and a unit vector q."""
    rng, dim = np.random.default_rng(0), num_relevant + num_irrelevant
    basis = scale * np.linalg.qr(rng.normal(size=(dim, dim)))[0]
    q = rng.normal(size=label_dim)
    parts = (basis[:num_relevant], basis[num_relevant:], q / np.linalg.norm(q))
    names = ("relevant", "irrelevant", "label_embedding")
    given = dict(zip(names, map(jnp.asarray, parts), strict=True))
    sizes = (num_relevant, num_irrelevant, scale)
    return PatternTask(*sizes, label_dim=label_dim, **given, **more)


def pattern_prompt(task, size, length, seed=1):
    """Patterns uniform, labels those of the task, one irrelevant pattern a token."""
    rng = np.random.default_rng(seed)
    mu, nu, q = map(np.asarray, (task.relevant, task.irrelevant, task.label_embedding))
    pair = np.array(task.tasks)[rng.integers(len(task.tasks), size=size)]
    pattern = rng.integers(len(mu), size=(size, length))
    coin = rng.choice([-1.0, 1.0], size=(size, length))
    y = np.where(pattern == pair[:, :1], 1, np.where(pattern == pair[:, 1:], -1, coin))
    z = rng.choice([-1.0, 1.0], size=size)
    query = np.where(z > 0, pair[:, 0], pair[:, 1])

    def tokens(pattern, y):
        kappa = rng.uniform(-0.5, 0.5, size=(*pattern.shape, 1))
        X = mu[pattern] + kappa * nu[rng.integers(len(nu), size=pattern.shape)]
        return np.concatenate([X, y[..., None] * q], axis=-1)

    leaves = (tokens(pattern, y), tokens(query, np.zeros(size)), y, z, pattern, query)
    return PatternPrompt(
        *map(jnp.asarray, (*leaves, pair, np.ones(size, bool))), dim=task.dim
    )


def pattern_params(model, task, seed=1, size=1.0):
    """Normal weights, none of them diagonal, so that a wrong transpose shows."""
    start = jax.eval_shape(lambda: model.init(task, key=jax.random.key(0)))
    rng = np.random.default_rng(seed)
    return {n: jnp.asarray(size * rng.normal(size=v.shape)) for n, v in start.items()}
