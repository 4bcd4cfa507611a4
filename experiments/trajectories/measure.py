"""Norms by depth, noise dimensions, bound terms and errors of pruned stacks."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from experiments.trajectories.config import Config
from experiments.trajectories.stacks import TrajectoryPrompts
from icltheory import bounds, linalg, pruning
from icltheory.attention import LinearAttentionStack
from icltheory.statistics import Estimate

KINDS = ("W_V", "W_K", "W_Q")


@dataclasses.dataclass(frozen=True)
class Norms:
    """Norms of one stack with one kind of matrix pruned at each layer, and unpruned.

    Attributes:
        delta_W: ``(prompts, k, t)``.
        G: ``(prompts, k, t)``.
        delta_W_unpruned: ``(prompts, t)``.
        G_unpruned: ``(prompts, t)``.
        changed: ``(prompts, k, t)``.
    """

    delta_W: np.ndarray
    G: np.ndarray
    delta_W_unpruned: np.ndarray
    G_unpruned: np.ndarray
    changed: np.ndarray

    def ratios(self, which: str = "G") -> tuple[np.ndarray, np.ndarray]:
        r"""Geometric mean over prompts of pruned over unpruned norm, ``(k, t)``.

        .. math:: r = \exp \overline{\log (a / b)} , \qquad
            \mathrm{se}(r) = r\, \mathrm{sd}(\log (a / b)) / \sqrt B

        The norms are polynomials of the demonstrations, of degree up to 3^L, and their
        arithmetic means would be those of a few prompts.
        """
        a = getattr(self, which)
        return geometric_mean(a / getattr(self, f"{which}_unpruned")[:, None])


def geometric_mean(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Geometric mean over the first axis, with its standard error."""
    mean, error = Estimate.of(np.log(np.asarray(values, float)))
    return np.exp(mean), np.exp(mean) * error


def norms(
    config: Config,
    stack: LinearAttentionStack,
    asked: TrajectoryPrompts,
    kind: str,
    rank: int,
) -> Norms:
    """Computes the table of Remark 5 for every prompt."""
    scale = 1.0 / asked.H.shape[1]

    @jax.jit
    def table(stack, H):
        def one(H):
            return pruning.depth_table(stack, H, kind, rank=rank, scale=scale)

        return jax.vmap(one)(H)

    found = table(stack, asked.H)
    return Norms(
        *(np.asarray(getattr(found, field.name)) for field in dataclasses.fields(Norms))
    )


@dataclasses.dataclass(frozen=True)
class Effect:
    """Error of a stack, and its terms of the bound.

    Attributes:
        support_dim: Dimension m_t of the space of the implicit gradients, ``(L,)``.
        terms: Layer terms T_t of the corrected Theorem 2, ``(L,)``.
        errors: Squared error / d of each prompt.
    """

    support_dim: np.ndarray
    terms: np.ndarray
    errors: np.ndarray


class Judge:
    """Evaluates stacks of one shape; compiled once."""

    def __init__(self, config: Config, asked: TrajectoryPrompts):
        self._asked = asked
        N, d = asked.H.shape[1], config.linear.dim

        @jax.jit
        def judge(stack, asked):
            steps = bounds.noisy_steps(stack, asked.H, config.shots, scale=1.0 / N)
            terms = bounds.isotropic_bound(steps, 1.0).terms

            def answer(H, h_query):
                return -stack.apply(H, h_query, scale=1.0 / N).h_query[-1, -1]

            errors = jnp.square(jax.vmap(answer)(*asked[:2]) - asked.answers) / d
            return steps.dim, terms, jnp.fmin(errors, config.error_cap)

        self._judge = judge

    def __call__(self, stack: LinearAttentionStack) -> Effect:
        """Evaluates one stack."""
        return Effect(*(np.asarray(x) for x in self._judge(stack, self._asked)))


def clipped(
    stack: LinearAttentionStack, layer: int, kind: str, rank: int
) -> LinearAttentionStack:
    """Returns the stack with one matrix of one layer clipped to a rank."""
    W = getattr(stack, kind)
    new = W.at[layer].set(linalg.low_rank_approximation(W[layer], rank))
    return dataclasses.replace(stack, **{kind: new})
