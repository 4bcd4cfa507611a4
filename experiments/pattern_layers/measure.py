"""Measures attention and label embeddings over training, and errors against S_1."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from experiments._patterns import (
    Means,
    TrainedEnsemble,
    means_of,
    over_seeds,
    scores_at_sums,
    scores_on,
)
from experiments.pattern_layers.config import Config
from icltheory.patterns import neuron_parts, scores

# Purpose of the keys of the prompts over training (see ``PatternEnsemble.keys``).
_PROBE = 6


@dataclasses.dataclass(frozen=True)
class DepthMeasurements:
    """Measurements of models trained on one set of tasks.

    Attributes:
        steps: Steps of the snapshots.
        attention: Mass on contexts of the query's pattern, ``(seeds, steps, layers)``.
        hinge: Hinge error in domain, on all tasks, ``(seeds, steps)``.
        label_norm: Norm of the label part of each row of W_O W_V, ``(seeds, steps,
            layers, m)``.
        label_angle: Its angle to q or -q, whichever is nearer, in multiples of pi.
        inside: Errors on tasks never trained on, at the end.
        outside: Errors out of domain, ``(seeds, sums, draws)``.
    """

    steps: list[int]
    attention: np.ndarray
    hinge: np.ndarray
    label_norm: np.ndarray
    label_angle: np.ndarray
    inside: Means
    outside: Means


def measure(config: Config, trained: TrainedEnsemble) -> DepthMeasurements:
    """Measures all snapshots of every seed, and the errors of the last one."""
    model = trained.model

    def one(task, _, key, snapshots):
        asked = task.with_(relevant_fraction=config.relevant_fraction)
        prompt = asked.sample(key, config.num_examples, config.probe_prompts)

        def look(params):
            found = scores(model, params, prompt)
            parts = jax.vmap(lambda *W: _parts(task, params["w"], *W))(
                *(params[name] for name in ("W_O", "W_V", "W_U"))
            )
            return found.attention_mass, found.hinge, *parts

        return jax.lax.map(look, snapshots)

    keys = trained.ensemble.keys(_PROBE)
    along = over_seeds(one, trained, keys, trained.path.params)
    attention, hinge, label_norm, label_angle = map(np.asarray, along)
    settings = {
        "num_examples": config.num_examples,
        "relevant_fraction": config.relevant_fraction,
    }
    known = scores_on(trained, config.draws * config.prompts, **settings)
    outside = scores_at_sums(
        trained, config.sums, config.draws, config.prompts, **settings
    )
    return DepthMeasurements(
        steps=trained.steps,
        attention=attention,
        hinge=hinge,
        label_norm=label_norm,
        label_angle=label_angle,
        inside=jax.tree.map(np.asarray, means_of(known)),
        outside=jax.tree.map(np.asarray, outside),
    )


def _parts(task, w, W_O, W_V, W_U):
    """Norms and angles of the label parts of one layer's neurons."""
    parts = neuron_parts({"W_O": W_O, "W_V": W_V, "a": w @ W_U}, task)
    angle = jnp.minimum(parts.label_angle, jnp.pi - parts.label_angle)
    return parts.label_norm, angle / jnp.pi
