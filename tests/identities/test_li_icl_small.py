"""Li et al. (2024) where training is small: four patterns, 16 neurons, 160 steps.

The claims of ``test_li_theorem1.py`` to ``test_li_theorem3.py`` and of
``test_li_icl_propositions.py``, which train at the papers' sizes.
"""

import functools

import jax
import numpy as np
import pytest

from icltheory import patterns
from tests.patterns.trained import SMALL, small_path, small_task

SEEDS = np.array([0, 1, 0, 1])
ALPHA = np.array([0.8, 0.8, 0.3, 0.3])


@functools.cache
def trained():
    """Two seeds at alpha = .8, two at .3: tasks, snapshots, losses and readings."""

    @jax.vmap
    def run(seed, alpha):
        keys = jax.random.split(jax.random.key(seed), 3)
        task = small_task(keys[0], 8, relevant_fraction=alpha)
        path = small_path(task, keys)
        asked = task.held_out().with_(relevant_fraction=0.8)
        prompt = asked.sample(jax.random.key(5), 20, 2048)
        parts = patterns.neuron_parts(path.last, task)
        pruned = patterns.prune_neurons(path.last, parts.num_small / 16)
        first = jax.tree.map(lambda leaf: leaf[0], path.params)
        return {
            "losses": path.losses,
            "parts": parts,
            "start": patterns.scores(SMALL, first, prompt),
            "end": patterns.scores(SMALL, path.last, prompt),
            "pruned": patterns.scores(SMALL, pruned, prompt),
            "logits": patterns.pattern_logits(path.last, task),
            "projections": patterns.projections(path.last, task, prompt),
        }

    found = jax.jit(run)(SEEDS, ALPHA.astype(np.float32))
    return jax.tree.map(lambda leaf: np.asarray(leaf)[:2], found) | {
        "losses": np.asarray(found["losses"])
    }


def hinge(found):
    return np.maximum(1 - found.margins, 0).mean(-1)


@pytest.mark.statement("Li ICL: Theorem 1")
def test_unseen_tasks_are_learned(measured):
    found = trained()
    assert np.all(hinge(found["start"]) > 0.9)
    assert np.all(hinge(found["end"]) < 2e-3)
    measured("hinge error on unseen tasks", hinge(found["end"]).max())


@pytest.mark.statement("Li ICL: Theorem 1, T")
def test_steps_are_more_where_fewer_examples_are_relevant(measured):
    """Of order alpha^(-2/3): by 1.9 from .8 to .3; between 1.3 and 3 here."""
    losses = trained()["losses"]
    smooth = np.stack([losses[:, i : i + 148] for i in range(11)]).mean(0)
    assert np.all(smooth.min(-1) < 0.2)
    steps = np.argmax(smooth < 0.2, axis=-1) + 5
    ratio = steps[2:] / steps[:2]
    measured("steps at alpha = .3 over those at .8", ratio.max())
    assert np.all((ratio > 1.3) & (ratio < 3))


@pytest.mark.statement("Li ICL: Proposition 1", "Li ICL: Figure 8", "Li ICL: Figure 9")
def test_attention_concentrates_on_the_pattern(measured):
    found = trained()
    before, after = (found[name].masses.mean((-2, -1)) for name in ("start", "end"))
    assert np.all(before < 0.6)
    assert np.all(after > 0.95)
    measured("1 - attention mass at the end", 1 - after.min())
    own = found["logits"][:, np.eye(4, dtype=bool)]
    others = found["logits"][:, ~np.eye(4, dtype=bool)]
    assert np.all(own.min(1) - others.max(1) > 3)
    part = found["projections"]
    assert np.all(part.query > 1.5)
    assert np.all(part.query_component > 0.85 * part.query)
    assert np.all(part.keys_component > 0.85 * part.keys)


@pytest.mark.statement(
    "Li ICL: Proposition 2",
    "Li ICL: Theorem 3, small neurons",
    "Li ICL: Figures 10 and 11",
)
def test_neurons_align_and_the_others_stay_small(measured):
    parts = trained()["parts"]
    label = np.where(parts.positive, parts.label_angle, np.pi - parts.label_angle)
    measured("feature angle / pi", parts.feature_angle[parts.large].max() / np.pi)
    measured("label angle / pi", label[parts.large].max() / np.pi)
    assert np.all(parts.feature_angle[parts.large] < 0.06 * np.pi)
    assert np.all(label[parts.large] < 0.04 * np.pi)
    assert np.all((parts.num_small >= 1) & (parts.num_small <= 6))
    assert np.all(parts.size[~parts.large] < 1.5 * 0.02 * 24**0.5)


@pytest.mark.statement("Li ICL: Theorem 3, small neurons", "Li ICL: Theorem 3, M2")
def test_pruning_the_small_neurons_is_free(measured):
    found = trained()
    change = np.abs(hinge(found["pruned"]) - hinge(found["end"]))
    measured("change of the hinge error", change.max())
    assert np.all(change < 1e-3)
