"""The flow of GD-beta compared with its proved bounds."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from experiments.gradient_flow.config import Config
from icltheory import regression as reg
from icltheory.regression import (
    LinearPopulation,
    Trajectory,
    flow,
    flow_bounds,
    flow_limit,
)
from icltheory.regression.flow_limits import FlowBounds

CASES = ("regular H", "singular H")


class FlowPath(NamedTuple):
    """A flow, its bounds, and the quantities that are checked.

    Attributes:
        trajectory: The flow.
        bounds: Its proved bounds.
        limit: Where Theorem 6.3 says that it goes.
        start: |P(beta_t - beta*)|.
        preconditioner: |P(Gamma_t - Gamma*)P|_F.
        frozen: Largest change of what the inputs do not span.
    """

    trajectory: Trajectory
    bounds: FlowBounds
    limit: reg.GDBeta
    start: np.ndarray
    preconditioner: np.ndarray
    frozen: float


def measure_paths(config: Config) -> dict[str, FlowPath]:
    """Computes the flow for each kind of input covariance H."""
    return {
        name: _measure(config, null)
        for name, null in zip(CASES, (0, config.null_dim), strict=True)
    }


def draw_problem(config: Config, null: int) -> LinearPopulation:
    """Draws a problem with random axes whose last eigenvalues of H are 0."""
    dim = config.dim
    rng = np.random.default_rng([config.seed, dim, null])
    axes = np.linalg.qr(rng.normal(size=(dim, dim)))[0]
    seen = np.geomspace(1, 1 / config.condition, dim - null)
    H = (axes * np.append(seen, np.zeros(null))) @ axes.T
    A = rng.normal(size=(dim, dim))
    mean = rng.normal(size=dim)
    return LinearPopulation((H + H.T) / 2, mean, A @ A.T / dim, config.noise_var)


def draw_start(config: Config, dim: int) -> reg.GDBeta:
    """Draws a start that is far from every optimum."""
    rng = np.random.default_rng([config.seed, dim, 99])
    beta, Gamma = rng.normal(size=dim), rng.normal(size=(dim, dim)) / dim**0.5
    return reg.GDBeta(jnp.asarray(beta), jnp.asarray(Gamma))


def _measure(config: Config, null: int) -> FlowPath:
    problem, M = draw_problem(config, null), config.num_examples
    start = draw_start(config, config.dim)
    first = flow_bounds(start, problem, M, np.zeros(1))
    end = 30 / min(float(first.alpha), float(first.gamma) / 2)
    times = np.append(0, np.geomspace(1e-2, end, config.points - 1))
    path = flow(start, problem, M, times, rtol=1e-9, atol=1e-14)
    best = reg.landscape.minimizers(problem, M)
    in_beta, in_Gamma = jax.jit(jax.vmap(best.distance))(path.model)
    return FlowPath(
        path,
        jax.jit(flow_bounds)(start, problem, M, jnp.asarray(times)),
        flow_limit(start, problem, M),
        np.asarray(in_beta),
        np.asarray(in_Gamma),
        _frozen(path, np.asarray(best.projector)),
    )


def _frozen(path: Trajectory, P: np.ndarray) -> float:
    beta, Gamma = np.asarray(path.model.beta), np.asarray(path.model.Gamma)
    in_beta = (beta - beta[:1]) @ (np.eye(len(P)) - P)
    change = Gamma - Gamma[:1]
    return float(max(np.abs(in_beta).max(), np.abs(change - P @ change @ P).max()))
