"""The second moment of X'y, which depends on fourth moments of the inputs."""

from icltheory._typing import Array
from icltheory.regression._linalg import einsum
from icltheory.regression.population import LinearPopulation


def label_moment(population: LinearPopulation, second: Array, k: Array) -> Array:
    """E [X'r r'X] / k for residuals r = X v + noise with E v v' = ``second``."""
    H = population.input_cov
    tau = einsum("ij,ji->", H, second) + population.noise_var
    return (k + 1) * einsum("ij,jk,kl->il", H, second, H) + tau * H
