import jax
import jax.numpy as jnp
from icltheory import models, training
from icltheory import regression as reg


def sines(key, X):  # draws a function, and returns its values at X (points, 2)
    return jnp.sin(2 * X @ jax.random.normal(key, X.shape[1:]))


source = reg.Functions(dim=2, draw=sines)
network = models.transformer(dim=2, num_examples=8, width=32, num_layers=2)
fit = training.fit(network, source, steps=1000, key=jax.random.key(0))
rules = {"transformer": fit.model, "ridge": reg.Ridge(1.0), "zero": reg.Zero()}
for name, rule in rules.items():
    found = reg.estimate_risk(rule, source, 8, key=jax.random.key(1))
    print(f"{name}: {found.mean:.3f} +- {found.standard_error:.3f}")
