"""Ten typical uses, which mypy and pyright accept in strict mode."""

import jax
import jax.numpy as jnp

from icltheory import bounds, linalg, noise, pruning, regression, statistics
from icltheory.attention import LinearAttentionStack, linear_attention
from icltheory.layered import LayeredStack
from icltheory.trajectory import implicit_gd

key = jax.random.key(0)
W_V, W_K, W_Q = jax.random.normal(key, (3, 2, 4, 4)) / 3
stack = LinearAttentionStack(W_V, W_K, W_Q)
H = jax.random.normal(key, (30, 20, 4))

# 1. A generalisation bound and what it says of itself
steps = bounds.noisy_steps(stack, H, 10, scale=1 / 20)
bound = bounds.isotropic_bound(steps.centred("mean"), 1.0)
print(bound.summary(), float(bound.value), bound.failing)
# 2. The implicit trajectory of one prompt
path = implicit_gd(stack, H[0], demo_updates="causal", scale=1 / 20)
print(path.G.shape, path.outputs(H[0, 0]))
# 3. The spectrum of its noise
print(noise.noise_spectrum(stack, H[0], 10, method="auto").rank.tolist())
# 4. One layer of linear attention
print(linear_attention(W_V[0], W_K[0], W_Q[0], H[0], H[0, 0], mask="demos").h_query)
# 5. A task, its prompts, and the best GD-beta
task = regression.LinearPopulation.isotropic(5, noise_var=0.25)
prompt = task.sample(key, 20, 64)
found = regression.optimum(regression.GDBeta, task, 20)
print(found.model.Gamma.shape, float(found.risk))
# 6. A predictor at every prefix
answers = jax.vmap(regression.Ridge(0.25).predict_prefixes)(prompt.X, prompt.y)
print(((answers - prompt.y) ** 2).mean(axis=0))
# 7. A simulated risk with its interval
estimate = regression.estimate_risk(regression.Bayes(task), task, range(9), key=key)
print(estimate.mean[-1], estimate.standard_error[-1])
# 8. Clipping a matrix and what it removes
clipped = pruning.prune(W_V[0], 0.5, method=pruning.LowRank(rule="floor"))
print(linalg.condition_number(clipped, rank=2), pruning.frobenius_split(clipped, 1))
# 9. A sweep over clipping rates
scored = pruning.Scored(LayeredStack.of(stack), stack, (H[0], H[0, 0]), jnp.sum)
print(pruning.sweep(scored, 0, "W_V", [0.0, 0.5]))
# 10. A bootstrap interval of an accuracy
interval = statistics.proportion_interval(3, 4, level=0.9)
print(interval.low, interval.high)
