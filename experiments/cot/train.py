"""Trains an ensemble of models, one per seed, in one program."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from experiments.cot.config import Config
from icltheory import chain_of_thought as cot


class ChainEnsemble(NamedTuple):
    """Trained models with a leading axis of seeds.

    Attributes:
        alphabets: TRR patterns and codes.
        path: What :func:`icltheory.chain_of_thought.train_attention` returned.
        keys: For what is drawn later.
    """

    alphabets: cot.Alphabet
    path: cot.ReasoningTraining
    keys: Any

    @property
    def models(self) -> cot.ReasoningAttention:
        """Models at the end of training."""
        return jax.tree.map(lambda leaf: leaf[:, -1], self.path.models)


def train(config: Config, num_steps: int, fraction: float) -> ChainEnsemble:
    """Trains models for tasks of ``num_steps`` steps, each seed on its own patterns."""

    def one(seed):
        letters, descent, later = jax.random.split(jax.random.key(seed), 3)
        alphabet = cot.Alphabet.orthonormal(
            letters, config.train_states, num_steps, config.dim
        )
        path = cot.train_attention(
            cot.ReasoningAttention.initial(config.dim, config.scale),
            cot.PermutationTasks(alphabet, fraction),
            config.train_examples,
            config.iterations,
            key=descent,
            batch_size=config.batch_size,
            step_size=config.step_size,
            record_every=config.record_every,
        )
        return ChainEnsemble(alphabet, path, later)

    return jax.jit(jax.vmap(one))(jnp.asarray(config.seeds))


def masses(config: Config, ensemble: ChainEnsemble) -> cot.AttentionMasses:
    """Computes attention masses over training on error-free prompts, (seeds, T)."""
    K = ensemble.alphabets.codes.shape[1]
    steps = jnp.stack([jnp.roll(jnp.eye(config.states), k, axis=1) for k in range(K)])

    def one(alphabet, models, key):
        letters, draws = jax.random.split(jax.random.fold_in(key, 0))
        unseen = alphabet.unseen(letters, config.states)
        task = cot.ReasoningTask(steps, config.chain_fraction, unseen)
        prompts = task.sample(draws, config.train_examples, config.mass_prompts)

        def at(model):
            found = jax.vmap(lambda p: cot.attention_masses(model, p))(prompts)
            return jax.tree.map(jnp.mean, found)

        return jax.lax.map(at, models)

    program = jax.jit(jax.vmap(one))
    return jax.device_get(
        program(ensemble.alphabets, ensemble.path.models, ensemble.keys)
    )
