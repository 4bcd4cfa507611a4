import jax
from icltheory import bounds
from icltheory import regression as reg


def model(X, y, x):  # X (N, d), y (N,), x (d,): any JAX function, or a predictor
    return reg.Ridge(1.0).predict(X, y, x)


# Pairs of points: a coin says which one is in the prompt, the other one is new.
losses, coins = bounds.supersample_losses(
    model,
    reg.LinearPopulation.isotropic(5, noise_var=0.25),
    num_examples=20,
    num_prompts=20_000,
    loss=bounds.ClippedSquaredError(4.0),  # squared error up to 4, divided by 4
    key=jax.random.key(0),
)
bound = bounds.supersample_bounds(losses, coins, levels=16).optimal  # of rounded losses
print(f"gap {bound.error:.4f}, at most {bound.upper:.4f} with confidence 95 %")
