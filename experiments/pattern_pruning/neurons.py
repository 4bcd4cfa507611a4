"""Errors against the pruned share of neurons, compared with theory."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments._patterns import TrainedEnsemble, over_seeds
from experiments.pattern_pruning.config import Config
from experiments.pattern_pruning.prompts import PROMPTS, errors, prompts_of
from icltheory.patterns import (
    PatternTask,
    gain_ratio,
    hinge,
    neuron_parts,
    prune_neurons,
    pruned_hinge,
)

ORDERS = ("magnitude", "reverse", "random")
TITLES = {"magnitude": "small first", "reverse": "large first", "random": "random"}
_ORDER_KEYS = 7


@dataclasses.dataclass(frozen=True)
class PruningCurve:
    """Errors for one order of pruning, with random orders averaged.

    Attributes:
        hinge: ``(seeds, rates, tests)``.
        error: 0-1 error, ``(seeds, rates, tests)``.
        counted: [1 - F (1 - g)]_+ for the share g of large neurons that is gone, with
            the margins F of the prompts before pruning; mean over prompts.
        weighed: The same for the share of the gain of neurons of the query's sign.
    """

    hinge: np.ndarray
    error: np.ndarray
    counted: np.ndarray
    weighed: np.ndarray


@dataclasses.dataclass(frozen=True)
class NeuronCurves:
    """Errors of models whose neurons are pruned, by order.

    Attributes:
        sizes: Norms of the rows of W_O, ascending, ``(seeds, m)``.
        small: Number of small ones, ``(seeds,)``.
        firing: Share of prompts on which any small neuron fires, and on which a large
            one does (mean over large ones), ``(seeds, 2)``.
        gain_ratio: g and c of each seed, ``(seeds, 2)``.
        margin: Mean margin before pruning, ``(seeds, tests)``.
        curves: A curve for each order.
        exact: Errors as in ``curves`` with as many neurons pruned as there are small
            ones, in each order.
    """

    sizes: np.ndarray
    small: np.ndarray
    firing: np.ndarray
    gain_ratio: np.ndarray
    margin: np.ndarray
    curves: dict[str, PruningCurve]
    exact: dict[str, PruningCurve]


def prune(config: Config, trained: TrainedEnsemble) -> NeuronCurves:
    """Prunes the neurons of every seed in one program."""

    def one(task, params, key):
        prompt = prompts_of(config, task, key, len(config.alphas), config.prompts)
        # Only the outputs of pruned neurons are removed, so attention is computed once
        # for all orders and rates.
        inputs = trained.model.embed(params, prompt)
        hidden = trained.model.block(0, params, inputs)
        parts = neuron_parts(params, task)
        few = jnp.mean((~parts.large).astype(task.dtype))[None]
        rates = jnp.concatenate([jnp.asarray(config.rates, task.dtype), few])
        own = jax.random.fold_in(key, _ORDER_KEYS)
        kept = _kept(params, rates, jax.random.split(own, config.random_orders))
        errors_of = _errors_of(trained.model, params, task, hidden, prompt.z)
        found = gain_ratio(params, task)
        return {
            "sizes": jnp.sort(parts.size),
            "small": parts.num_small,
            "firing": _firing(hidden, parts.large),
            "gain_ratio": jnp.stack([found.gain, found.ratio]),
            "margin": jnp.mean(
                prompt.z * trained.model.read_out(params, hidden), (-2, -1)
            ),
        }, jax.lax.map(lambda masks: jax.lax.map(errors_of, masks), kept)

    known, found = over_seeds(one, trained, trained.ensemble.keys(PROMPTS))
    known, found = jax.tree.map(np.asarray, (known, found))
    # Shape (seeds, orders, rates, tests): two orders by size, then the random ones.
    split = [(m[:, 0], m[:, 1], m[:, 2:].mean(1)) for m in found]
    curves = {o: PruningCurve(*(x[i] for x in split)) for i, o in enumerate(ORDERS)}

    def part(which):
        return {
            order: PruningCurve(*(values[:, which] for values in vars(curve).values()))
            for order, curve in curves.items()
        }

    return NeuronCurves(**known, curves=part(slice(-1)), exact=part(slice(-1, None)))


def _kept(params, rates, keys):
    """Masks of the neurons to keep, (orders, rates, m): by size, then at random."""

    def masks(order, key=None):
        def at(rate):
            cut = prune_neurons(params, rate, order=order, key=key)
            return jnp.any(cut["W_O"] != 0, axis=1)

        return jax.vmap(at)(rates)

    by_size = jnp.stack([masks(order) for order in ORDERS[:2]])
    at_random = jax.vmap(lambda key: masks(ORDERS[2], key))(keys)
    return jnp.concatenate([by_size, at_random])


def _errors_of(model: Any, params: Any, task: PatternTask, hidden, z):
    """Returns a function from masks of neurons to measured and predicted errors."""
    margins = z * model.read_out(params, hidden)
    large = neuron_parts(params, task).large
    positive, negative = (_gains(params, task, sign) for sign in (True, False))

    def at(kept):
        outputs = model.read_out(params, jnp.where(kept, hidden, 0))
        counted = pruned_hinge(margins, _share(~kept, large))
        of_sign = jnp.where(z > 0, _share(~kept, positive), _share(~kept, negative))
        weighed = hinge(margins * (1 - of_sign))
        predicted = (jnp.mean(values, (-2, -1)) for values in (counted, weighed))
        return (*errors(outputs, z), *predicted)

    return at


def _firing(hidden, large):
    fires = hidden > 0
    shares = jnp.mean(fires, tuple(range(hidden.ndim - 1)))
    some_small = jnp.mean(jnp.any(jnp.where(large, False, fires), axis=-1))
    return jnp.stack([some_small, jnp.mean(shares, where=large)])


def _gains(params, task, positive):
    """Contribution of each neuron of a sign to the margin of queries of that sign."""
    parts = neuron_parts(params, task)
    along = parts.feature_norm * jnp.cos(parts.feature_angle)
    along = along * jnp.linalg.norm(jnp.mean(task.relevant, axis=0))
    off = parts.label_norm * jnp.abs(jnp.cos(parts.label_angle))
    mine = parts.lucky() & (parts.positive == positive)
    return jnp.where(mine, jnp.abs(params["a"]) * (along + off), 0)


def _share(gone, weights):
    weights = weights.astype(float)
    return jnp.sum(jnp.where(gone, weights, 0)) / jnp.sum(weights)
