"""Attention and neurons over training (Figures 8 to 11)."""

from typing import NamedTuple

import jax

from experiments._patterns import Means, TrainedEnsemble, means_of, over_seeds
from experiments.pattern_icl.config import Config
from icltheory.patterns import (
    NeuronParts,
    Projections,
    neuron_parts,
    projections,
    scores,
)

_KEYS = 10


class Mechanism(NamedTuple):
    """Measurements over training; every leaf begins with (seeds, snapshots).

    Attributes:
        in_domain: Scores on unseen tasks.
        shifted: Scores on one draw of out-of-domain patterns.
        tokens: Norms of W_Q p and W_K p, and their components along the pattern.
        shifted_tokens: The same out of domain.
        parts: Feature and label parts of every neuron.
    """

    in_domain: Means
    shifted: Means
    tokens: Projections
    shifted_tokens: Projections
    parts: NeuronParts


def mechanism(config: Config, trained: TrainedEnsemble) -> Mechanism:
    """Measures every snapshot of every seed on the same prompts in one program."""
    ensemble = trained.ensemble

    def one(task, _, key, snapshots):
        keys = jax.random.split(key, 3)
        size = ensemble.num_examples, config.prompts
        unseen = task.held_out()
        prompt = unseen.sample(keys[0], *size)
        away = task.out_of_domain(config.reference_sum, key=keys[1])
        asked = away.sample(keys[2], *size)

        def look(params):
            return Mechanism(
                means_of(scores(trained.model, params, prompt)),
                means_of(scores(trained.model, params, asked)),
                projections(params, unseen, prompt),
                projections(params, away, asked),
                neuron_parts(params, task),
            )

        return jax.lax.map(look, snapshots)

    return over_seeds(one, trained, ensemble.keys(_KEYS), trained.path.params)
