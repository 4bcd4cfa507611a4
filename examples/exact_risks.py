import jax
import jax.numpy as jnp
from icltheory import regression as reg

pop = reg.LinearPopulation(
    input_cov=jnp.diag(jnp.array([4.0, 1.0, 0.25])),  # covariance of your inputs
    task_mean=jnp.array([1.0, 0.0, 0.0]),
    task_cov=jnp.eye(3),
    noise_var=0.25,
)
# The best LSA is searched (hence the key), the best LTB has a formula; risks are exact.
lsa = reg.optimum(reg.LSA, pop, 20, key=jax.random.key(0)).risk
ltb = jax.vmap(lambda n: reg.optimum(reg.LTB, pop, n).risk)(jnp.arange(1, 41))
slope = jax.grad(lambda s: reg.optimum(reg.LTB, pop.with_(noise_var=s), 20).risk)(0.25)
print(f"20 examples: attention {lsa:.3f}, with a linear MLP (LTB) {ltb[19]:.3f}")
print(f"derivative in the noise variance {slope:.3f}")
