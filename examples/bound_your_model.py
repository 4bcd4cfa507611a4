import jax
from icltheory import bounds
from icltheory import regression as reg


def model(X, y, x):  # anything that answers a prompt
    return reg.Ridge(1.0).predict(X, y, x)


task = reg.LinearPopulation.isotropic(5, noise_var=0.25)
given = model, task, 20, 20_000, bounds.ClippedSquaredError(4.0)
losses, coins = bounds.supersample_losses(*given, key=jax.random.key(0))
bound = bounds.supersample_bounds(losses, coins, levels=16).optimal
print(f"error {bound.error:.4f}, at most {bound.upper:.4f} (95 %)")
