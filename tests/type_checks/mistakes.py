"""Ten mistakes, each in a line with a mark; mypy and pyright find all of them."""

import jax

from icltheory import bounds, noise, pruning, trajectory
from icltheory.attention import LinearAttentionStack, linear_attention
from icltheory.regression import GDBeta, LinearPopulation, optimum

W = jax.random.normal(jax.random.key(0), (1, 2, 2))
stack = LinearAttentionStack(W, W, W)
H = jax.random.normal(jax.random.key(1), (5, 2))
task = LinearPopulation.isotropic(2)

steps = bounds.noisy_steps(stack, H, 2)
steps.norm_product("nuclear")  # MISTAKE
bounds.held_out_bound(steps.ambient(), 1.0, 3)  # MISTAKE
bounds.noisy_steps((W, W, W), H, 2)  # MISTAKE
trajectory.implicit_gd(stack, H, demo_updates="demos")  # MISTAKE
noise.noise_spectrum(stack, H, 2, method="fast")  # MISTAKE
linear_attention(W[0], W[0], W[0], H, H[0], mask="M")  # MISTAKE
pruning.prune(W[0], 0.5, method=pruning.LowRank(rule="round"))  # MISTAKE
optimum(GDBeta, stack, 3)  # MISTAKE
task.sample(jax.random.key(0), "20", 3)  # MISTAKE
print(bounds.isotropic_bound(steps, 1.0).values)  # MISTAKE
