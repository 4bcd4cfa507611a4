"""A finite pool of tasks that are generated when needed; its size may be traced."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from icltheory import training
from icltheory.regression import LinearPopulation
from icltheory.regression.prompts import Prompt

# Stands for "no pool": more tasks than a training run draws.
_NO_POOL = 2**31 - 1


@dataclasses.dataclass(frozen=True)
class Pool:
    """Prompts with w ~ Uniform{w_1, ..., w_M}; fresh inputs and noise in every prompt.

    Task i is drawn from N(0, I) with a key that depends on the pool's key and i alone.
    So a pool holds all smaller ones of the same key, and one compiled program serves
    all sizes.

    Attributes:
        task: The family: inputs, noise and the Gaussian prior.
        key: Key of the pool.
        size: Number of tasks M, possibly traced; 0 for a new task in every prompt.
    """

    task: LinearPopulation
    key: Any
    size: Any

    @classmethod
    def of_seed(cls, task: LinearPopulation, seed: Any, size: Any) -> "Pool":
        """Returns the pool that a run with this seed is trained on."""
        return cls(task, evaluation_key(seed, "pool"), size)

    @property
    def dim(self) -> int:
        """Input dimension d."""
        return self.task.dim

    def members(self, index: jax.Array) -> jax.Array:
        """Returns the tasks with the given indices."""

        def draw(i):
            return self.task.sample_parameters(jax.random.fold_in(self.key, i), 1)[0]

        return jax.vmap(draw)(index)

    def sample(
        self, key: Any, num_examples: int, num_prompts: int, *, active_dims: Any = None
    ) -> Prompt:
        """Draws prompts; ``active_dims`` is ignored."""
        draw, inputs, noise = jax.random.split(key, 3)
        limit = jnp.where(self.size == 0, _NO_POOL, self.size)
        w = self.members(jax.random.randint(draw, (num_prompts,), 0, limit))
        X = self.task.sample_inputs(inputs, num_examples + 1, num_prompts)
        y, w = self.task.label(noise, w, X)
        return Prompt(X[:, :-1], y[:, :-1], X[:, -1], y[:, -1], w)


_USES = ("pool", "prompts", "new prompts", "theory")


def evaluation_key(seed: Any, use: str) -> Any:
    """Returns a seed's key for random numbers other than training prompts."""
    return jax.random.fold_in(training.stream_key(seed, "evaluation"), _USES.index(use))
