"""Error of nonlinear attention by depth on Gaussian processes."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from experiments.mechanisms.config import Kernels
from icltheory import constructions
from icltheory.attention import kernel_matrix
from icltheory.regression import kernels as theory
from icltheory.statistics import Estimate
from icltheory.training import stream_key


class Depths(NamedTuple):
    """Errors by depth of one attention kernel on data of one process.

    Attributes:
        mean: Mean squared error at each depth over that of answering 0, (T,).
        error: Its standard error over draws of the inputs, (T,).
        one: Standard deviation of one draw, (T,).
        bad: Share of the prompts whose kernel matrix has a negative eigenvalue.
    """

    mean: np.ndarray
    error: np.ndarray
    one: np.ndarray
    bad: float


def forms(config: Kernels, seed: int) -> dict[str, float]:
    """Largest difference between stack, recursion and closed form, for each kernel."""
    keys = jax.random.split(stream_key(seed, "data"), 2)
    X = jax.random.normal(keys[0], (config.num_examples + 1, config.dim))
    X, y = X / np.sqrt(config.dim), jax.random.normal(keys[1], (config.num_examples,))
    return {name: _largest(config, name, X, y) for name in config.attention}


def _largest(config: Kernels, kernel: str, X: Array, y: Array) -> float:
    system = theory.KernelSystem.of(kernel, X[:-1], X[-1])
    r = system.largest_step / 2
    stack = theory.kernel_descent_stack(
        jnp.broadcast_to(r, config.layers), config.dim, kernel
    )
    tokens = constructions.join_tokens(X[:-1], y[:, None], X[-1])
    out = stack.apply(*tokens).h_query
    by_layers = constructions.read_prediction(out, config.dim)[:, 0]
    by_steps = theory.functional_descent(system, y, r, config.layers)
    depths = jnp.arange(config.layers + 1)
    closed = theory.kernel_descent(system, y, r, depths).prediction
    size = jnp.max(jnp.abs(closed))
    gaps = jnp.stack([by_layers - by_steps, by_steps - closed])
    return float(jnp.max(jnp.abs(gaps)) / size)


def errors(config: Kernels, seed: int, data: str) -> tuple[dict[str, Depths], Depths]:
    """Errors of every attention kernel on one process, and of kriging."""
    shape = (config.draws, config.num_examples + 1, config.dim)
    X = jax.random.normal(stream_key(seed, "evaluation"), shape)
    eye = config.nugget * jnp.eye(config.num_examples + 1)
    C = jax.jit(jax.vmap(lambda x: kernel_matrix(data, x, x) + eye))(X)
    size = float(jnp.mean(C[:, -1, -1]))
    best = np.asarray(jax.jit(jax.vmap(theory.kriging_risk))(C)) / size
    found = {}
    for kernel in config.attention:
        risks, psd = _risks(kernel, config.depths, X, C)
        found[kernel] = _summary(np.asarray(risks) / size, 1 - float(jnp.mean(psd)))
    return found, _summary(best[:, None], 0.0)


def _risks(kernel: str, depths: tuple[int, ...], X: Array, C: Array):
    @jax.jit
    @jax.vmap
    def run(x, C):
        system = theory.KernelSystem.of(kernel, x[:-1], x[-1])
        r = system.largest_step / 2
        weights = theory.descent_weights(system, r, jnp.asarray(depths))
        risks = theory.gaussian_process_risk(weights, C)
        return risks, system.positive_semidefinite

    return run(X, C)


def _summary(values: np.ndarray, bad: float) -> Depths:
    mean, error = Estimate.of(values)
    return Depths(mean, error, error * np.sqrt(len(values)), bad)
