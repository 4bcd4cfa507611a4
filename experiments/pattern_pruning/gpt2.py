"""Prunes hidden neurons of GPT-2's MLPs (Figures 14 and 15)."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Bool, Float

from experiments._patterns.gpt2 import TrainedGpt
from experiments.pattern_pruning.config import Config
from experiments.pattern_pruning.neurons import ORDERS
from experiments.pattern_pruning.prompts import OUTSIDE, errors, prompts_of
from icltheory import training
from icltheory.models import GPT2
from icltheory.patterns import PatternPrompt
from icltheory.pruning import prune_rows


@dataclasses.dataclass(frozen=True)
class GptCurves:
    """Errors of pruned GPT-2 models; every block loses the same share of neurons.

    Attributes:
        sizes: Norms of the neurons, ascending, ``(seeds, blocks, m)``.
        hinge: Out of domain at the first alpha', ``(seeds, rates)`` by order; random
            orders averaged.
        error: 0-1 error, likewise.
        test_hinge: Small ones first, in every test, ``(seeds, rates, tests)``.
        test_error: 0-1 error, likewise.
    """

    sizes: np.ndarray
    hinge: dict[str, np.ndarray]
    error: dict[str, np.ndarray]
    test_hinge: np.ndarray
    test_error: np.ndarray


def prune_gpt(config: Config, trained: TrainedGpt) -> GptCurves:
    """Prunes the GPT-2 of every seed on its own prompts, in one program."""
    module = trained.module

    def one(args):
        params, key = args
        prompt = gpt_prompts(config, trained, key)
        kept = masks(config, neurons_of(module, params), key)

        def tested(prompt):
            def at(kept):
                return errors(outputs_of(module, params, kept, prompt), prompt.z)

            return at

        shifted = jax.tree.map(lambda leaf: leaf[OUTSIDE], prompt)
        rest = kept[1:].reshape(-1, *kept.shape[2:])
        return (
            jnp.sort(jnp.linalg.norm(neurons_of(module, params), axis=-1)),
            jax.lax.map(tested(prompt), kept[0]),
            jax.lax.map(tested(shifted), rest),
        )

    args = trained.params, gpt_keys(config)
    sizes, first, rest = jax.jit(lambda args: jax.lax.map(one, args))(args)
    (hinge, others_hinge), (error, others_error) = (
        (np.asarray(tests), np.asarray(others))
        for tests, others in zip(first, rest, strict=True)
    )
    return GptCurves(
        np.asarray(sizes),
        _by_order(hinge, others_hinge),
        _by_order(error, others_error),
        test_hinge=hinge,
        test_error=error,
    )


def _by_order(tests, others) -> dict[str, np.ndarray]:
    """Out-of-domain errors by order, (seeds, rates), random orders averaged."""
    seeds, rates, _ = tests.shape
    others = others.reshape(seeds, -1, rates)
    found = tests[..., OUTSIDE], others[:, 0], others[:, 1:].mean(1)
    return dict(zip(ORDERS, found, strict=True))


def gpt_keys(config: Config) -> jax.Array:
    """Returns one key per seed for its test prompts and random orders."""
    return jnp.stack([training.stream_key(s, "evaluation") for s in config.gpt_seeds])


def gpt_prompts(config: Config, trained: TrainedGpt, key: Any) -> PatternPrompt:
    """Draws the test prompts of one seed, (tests, draws, prompts)."""
    size = len(config.alphas), config.gpt_prompts, config.gpt_draws
    return prompts_of(config, trained.task, key, *size)


def neurons_of(module: GPT2, params: Any) -> Float[Array, "blocks m width"]:
    """Input weights of each MLP neuron, without bias."""
    blocks = (params[f"block_{layer}"] for layer in range(module.num_layers))
    return jnp.stack([block["mlp_in"]["kernel"].T for block in blocks])


def masks(
    config: Config, W: Float[Array, "blocks m width"], key: Any
) -> Bool[Array, "orders rates blocks m"]:
    """Masks of the neurons to keep: small first, large first, and random orders."""
    rates = jnp.asarray(config.gpt_rates, W.dtype)

    def kept(order, key=None):
        keys = None if key is None else jax.random.split(key, len(W))

        def block(W, rate, key):
            cut = prune_rows(W, rate, order=order, key=key)
            return jnp.any(cut != 0, axis=-1)

        return jax.vmap(lambda rate: jax.vmap(block, (0, None, 0))(W, rate, keys))(
            rates
        )

    own = jax.random.split(jax.random.fold_in(key, 2), config.gpt_random_orders)
    by_size = jnp.stack([kept(order) for order in ORDERS[:2]])
    return jnp.concatenate([by_size, jax.vmap(lambda k: kept(ORDERS[2], k))(own)])


def without(params: Any, kept: Bool[Array, "blocks m"]) -> Any:
    """Returns parameters without the pruned neurons, whose weights become zero."""
    params = dict(params)
    for layer, stays in enumerate(kept):
        block = params[f"block_{layer}"]
        into = {k: jnp.where(stays, leaf, 0) for k, leaf in block["mlp_in"].items()}
        params[f"block_{layer}"] = block | {"mlp_in": into}
    return params


def outputs_of(
    module: GPT2, params: Any, kept: Bool[Array, "blocks m"], prompt: PatternPrompt
) -> Float[Array, "..."]:
    """Outputs F of the pruned model, in the shape of ``prompt.z``."""
    shape = prompt.z.shape
    X, y, x = (
        leaf.reshape(-1, *leaf.shape[len(shape) :])
        for leaf in (prompt.X, prompt.y, prompt.x_query)
    )
    weights = {"params": without(params, kept)}
    found: Any = module.apply(weights, X, y, x, method="predict")
    return found.reshape(shape)
