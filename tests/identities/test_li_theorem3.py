"""Li et al. (2024), Theorem 3: small neurons are free, large ones cost their share."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from icltheory.patterns import (
    Constants,
    PatternTask,
    neuron_parts,
    prune_neurons,
    pruned_hinge,
    pruning_conditions,
    scores,
)
from tests.identities.test_li_theorem2 import ideal_network, read
from tests.patterns import drawn
from tests.patterns.compiled import sample
from tests.patterns.trained import MODEL, ensemble

KEY = jax.random.key(13)
SIZES = {"relevant": (6, 30), "irrelevant": (24, 30), "label_embedding": (30,)}
# For its M2; without patterns, so that none are drawn.
TASK = PatternTask(6, 24, 2.0, **{n: np.zeros(size) for n, size in SIZES.items()})
RATES = np.array([0.0, 0.15, 0.2, 0.3, 0.4, 0.6, 0.8])


def large_gone(params, pruned):
    """The share g of the large neurons whose rows are gone."""
    size = np.linalg.norm(params["W_O"], axis=-1)
    large = size >= size.max(-1, keepdims=True) / 2
    gone = np.linalg.norm(pruned["W_O"], axis=-1) == 0
    return (large & gone).sum(-1) / large.sum(-1)


@functools.cache
def curves(order, draws=1):
    """Hinge error, margin and g of three models, draws and rates; S_1 = 1.1."""
    task, params = ensemble().at(3.0)
    keys = jax.random.split(jax.random.key(0), draws)

    @jax.jit
    def run(task, params):
        prompt = sample(task, KEY, 20, 2048, 0.8, 1.1)

        def at(rate, key):
            given = key if order == "random" else None
            pruned = prune_neurons(params, rate, order=order, key=given)
            got = scores(MODEL, pruned, prompt)
            return got.hinge, got.margin, pruned["W_O"]

        return jax.vmap(jax.vmap(at, (0, None)), (None, 0))(jnp.asarray(RATES), keys)

    loss, margins, W = jax.vmap(run)(task, params)
    whole = {"W_O": np.asarray(params["W_O"])[:, None, None]}
    return np.asarray(loss), np.asarray(margins), large_gone(whole, {"W_O": W})


@pytest.mark.statement("Li ICL: Theorem 3, large neurons")
@pytest.mark.parametrize("removed", [0, 2, 4, 6])
def test_an_ideal_network_keeps_its_share_of_the_margin(measured, removed):
    """Balanced removal: F (1 - g) exactly, prompt by prompt."""
    task = drawn.pattern_task(6, 4, 2.0, 3)
    params = ideal_network(task, 0.7, 0.9)
    prompt = drawn.pattern_prompt(task, 200, 20)
    kept = (np.arange(8) >= removed)[:, None]
    fewer = params | {"W_O": kept * np.asarray(params["W_O"])}
    hit = ~np.asarray(prompt.missed)
    whole, cut = (
        np.asarray(read(p, task, prompt)[0].margins)[hit] for p in (params, fewer)
    )
    wanted = whole * (1 - removed / 8)
    np.testing.assert_allclose(cut, wanted, atol=1e-12)
    loss = pruned_hinge(whole, removed / 8)
    np.testing.assert_allclose(np.maximum(1 - cut, 0), loss, atol=1e-12)
    measured("margin off", np.abs(cut - wanted).max())


@pytest.mark.statement("Li ICL: Theorem 3, small neurons")
@pytest.mark.slow
def test_neurons_fall_into_two_groups(measured):
    """The large ones outgrow xi sqrt(d); half of the small ones hardly leave it."""
    members = ensemble()
    parts = jax.vmap(neuron_parts)(members.params, members.task)
    start = 0.02 * 60**0.5
    small = np.asarray(parts.num_small)
    assert np.all((small >= 2) & (small <= 16))
    grown = np.where(parts.large, parts.size, np.inf).min(-1)
    assert np.all(grown > 2 * start)
    middle = np.nanmedian(np.where(parts.large, np.nan, parts.size), axis=-1)
    assert np.all(middle < 1.2 * start)
    between = (parts.size > 1.3 * start) & (parts.size < 2 * start)
    assert np.all(between.sum(-1) <= 2)
    measured("small neurons of 64, most", small.max())
    measured("neurons between the groups", between.sum(-1).max())


@pytest.mark.statement("Li ICL: Theorem 3, small neurons")
@pytest.mark.slow
def test_pruning_all_small_neurons_is_free(measured):
    """At S_1 = 1.1 they are dead: no margin moves at all. At S_1 = 0 they are not."""
    task, params = ensemble().at(3.0)
    share = jax.vmap(neuron_parts)(params, task).num_small / 64

    @jax.jit
    def both(S):
        def one(task, params, share):
            prompt = sample(task, KEY, 20, 4096, 0.8, S)
            pruned = prune_neurons(params, share)
            lost = jnp.sum(~jnp.any(pruned["W_O"] != 0, axis=1))
            return scores(MODEL, params, prompt), scores(MODEL, pruned, prompt), lost

        return jax.vmap(one)(task, params, share)

    whole, cut, lost = both(1.1)
    np.testing.assert_array_equal(lost, 64 * share)
    assert np.all(lost >= 4)
    assert np.all(np.abs(cut.hinge - whole.hinge) < 1e-3)
    for eps, error in zip(whole.hinge, cut.hinge, strict=True):
        found = pruning_conditions(TASK, float(eps), float(error), 1.0, 0.4)
        assert found["small neurons"].holds
    measured("change of the hinge error", np.abs(cut.hinge - whole.hinge).max())
    whole, cut, _ = both(0.0)
    moved = np.abs(cut.margin - whole.margin)
    assert np.all((moved > 0) & (moved < 0.01))
    measured("change of the margin at S_1 = 0", moved.max())


@pytest.mark.statement("Li ICL: Theorem 3, large neurons")
@pytest.mark.slow
def test_random_pruning_follows_the_formula(measured):
    """[1 - F (1 - g)]_+ in the mean of 24 draws, for each of three models."""
    loss, margins, gone = curves("random", 24)
    full = margins[:, :, :1]
    wanted = pruned_hinge(full, gone).mean(1)
    measured("mean hinge error off", loss.mean(1) - wanted, below=0.02)


@pytest.mark.statement("Li ICL: Theorem 3, large neurons")
@pytest.mark.slow
def test_large_neurons_cost_their_share(measured):
    """At least the formula, and little more: order unbalances the signs of a."""
    loss, margins, gone = curves("reverse")
    wanted = np.asarray(pruned_hinge(margins[..., :1], gone))
    over = (loss - wanted)[..., 1:]
    assert np.all(over > -0.02)
    assert np.all(over < 0.12)
    for error, share in zip(loss.ravel(), gone.ravel(), strict=True):
        given = TASK, 0.0, 0.0, float(error), float(share)
        found = pruning_conditions(*given, constants=Constants(large=0.5))
        assert found["large neurons"].holds
    small = curves("magnitude")[0]
    assert np.all(small[..., 1:] < loss[..., 1:])
    measured("above the formula", over.max())


@pytest.mark.statement("Li ICL: Theorem 3, large neurons")
@pytest.mark.slow
def test_a_share_within_the_slack_of_the_margin_can_be_free(measured):
    """The counter-example to Omega(R) for any choice of large neurons: g < 1 - 1/F.

    Two large neurons of each sign go, the smallest ones, and the hinge stays 0.
    """
    task, params = ensemble().at(2.0)

    @jax.jit
    @jax.vmap
    def run(task, params):
        parts = neuron_parts(params, task)
        gone = jnp.zeros(64, bool)
        for sign in (parts.positive, ~parts.positive):
            size = jnp.where(parts.large & sign, parts.size, jnp.inf)
            gone = gone.at[jnp.argsort(size)[:2]].set(True)
        cut = params | {"W_O": jnp.where(gone[:, None], 0, params["W_O"])}
        prompt = task.sample(KEY, 20, 2048)
        return scores(MODEL, cut, prompt).hinge, 4 / parts.large.sum()

    loss, share = run(task, params)
    assert np.all(share > 0.06)
    assert np.all(loss < 2e-3)
    measured("hinge error", loss.max())
    measured("share R of the large neurons", share.min())
