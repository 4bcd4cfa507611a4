import jax
import jax.numpy as jnp
from icltheory import models, training
from icltheory import regression as reg


def sines(key, X):  # a random function, and its values at X, (points, 2)
    return jnp.sin(2 * X @ jax.random.normal(key, X.shape[1:]))


source = reg.Functions(2, sines)
model = models.transformer(2, 8, width=32, num_layers=2)
fit = training.fit(model, source, steps=1000, key=jax.random.key(0))
for rule in (fit.model, reg.Ridge(1.0)):
    print(reg.estimate_risk(rule, source, 8, key=jax.random.key(1)))
