import jax
import jax.numpy as jnp
from icltheory import regression as reg

pop = reg.LinearPopulation(
    input_cov=jnp.diag(jnp.array([4.0, 1.0, 0.25])),  # of your inputs
    task_mean=jnp.array([1.0, 0.0, 0.0]),
    task_cov=jnp.eye(3),
    noise_var=0.25,
)
attention = reg.optimum(reg.LSA, pop, 20, key=jax.random.key(0)).risk
block = jax.vmap(lambda n: reg.optimum(reg.LTB, pop, n).risk)
curve = block(jnp.arange(1, 41))  # every number of examples at once
print(f"best linear attention {attention:.3f}, with an MLP {curve[19]:.3f}")
