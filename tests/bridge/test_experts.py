"""Mixtures of experts: the block against a loop, and experts as modules that prune."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from icltheory.bridge import (
    Decoder,
    Experts,
    load_checkpoint,
    prune_model,
    save_checkpoint,
)
from icltheory.bridge.decoder import Tokens
from icltheory.bridge.families import read_architecture
from icltheory.layered import get_matrix, replace_matrix
from icltheory.pruning import Intervention, module_matrices
from icltheory.pruning import prune_model as prune_params
from tests.bridge.tiny import config_of, model_of
from tests.oracles import truncate

IDS = np.random.default_rng(0).integers(0, 37, (2, 5))
NAMES = ("W_in", "W_gate", "W_out")
block = jax.jit(Decoder.block, static_argnums=(0, 1))


def silu(x):
    return x / (1 + np.exp(-x))


def mixture_loop(x, mlp, experts):
    """One token after another, one expert after another, in float64."""
    total = np.zeros_like(x)
    for place in np.ndindex(x.shape[:-1]):
        scores = np.array([row @ x[place] for row in mlp["router"]])
        p = np.exp(scores - scores.max())
        p = p / p.sum()
        chosen = sorted(range(experts.num), key=lambda e: -p[e])[: experts.per_token]
        c = sum(p[e] for e in chosen) if experts.normalised else 1.0
        for e in chosen:
            W_in, W_gate, W_out = (mlp[e][name] for name in NAMES)
            inside = silu(W_gate @ x[place]) * (W_in @ x[place])
            total[place] += p[e] / c * (W_out @ inside)
    return total


def matrices_of(layer, num):
    mlp = jax.tree.map(np.asarray, layer["mlp"])
    found = {e: {n: mlp[f"expert_{e}"][n]["weight"] for n in NAMES} for e in range(num)}
    return found | {"router": mlp["router"]["weight"]}


def added_by_experts(model, params):
    """What the experts of layer 1 read, and what they add to the stream."""
    decoder = model.decoder
    stream = decoder.embed(params, Tokens(jnp.asarray(IDS), jnp.ones(IDS.shape, bool)))
    silent = params
    for spec in model.matrices(1):
        if spec.name.endswith("W_out"):
            W = get_matrix(params, spec)
            silent = replace_matrix(silent, spec, jnp.zeros_like(W))
    before = np.asarray(block(decoder, 1, silent, stream).h)
    after = np.asarray(block(decoder, 1, params, stream).h)
    scale = np.asarray(params["layers"][1]["norm_2"]["scale"])
    size = np.sqrt((before**2).mean(-1, keepdims=True) + model.arch.norm_eps)
    return before / size * scale, after - before


@pytest.mark.parametrize("family", ["mixtral", "qwen3_moe"])
@pytest.mark.parametrize("module", [None, "expert_1", "expert_2.W_in", "mlp"])
def test_pruned_experts_are_those_of_a_loop(family, module):
    """One expert, one matrix of one, all of them, and none, at half the rank."""
    model = model_of(family, "float64")
    experts, params = model.arch.experts, model.params
    mlp = matrices_of(params["layers"][1], experts.num)
    if module is not None:
        params = prune_params(model, params, Intervention(1, module, 0.5))
        for e in range(experts.num):
            for name in NAMES:
                if module in ("mlp", f"expert_{e}", f"expert_{e}.{name}"):
                    rank = min(mlp[e][name].shape) // 2
                    mlp[e][name] = truncate(mlp[e][name], rank)
    read, added = added_by_experts(model, params)
    wanted = mixture_loop(read, mlp, experts)
    assert np.abs(wanted).max() > 0.01
    np.testing.assert_allclose(added, wanted, atol=1e-12)


def test_an_expert_is_a_module_and_the_router_is_none():
    model = model_of("mixtral")
    names = [spec.name for spec in module_matrices(model, 0, "expert_2")]
    assert names == [f"expert_2.{name}" for name in ("W_in", "W_gate", "W_out")]
    assert len(module_matrices(model, 0, "mlp")) == 9
    assert len(module_matrices(model, 0, "all")) == 13
    for unknown in ("router", "expert_3", "W_in"):
        with pytest.raises(ValueError, match="module: expected one of 'all', 'attn'"):
            module_matrices(model, 0, unknown)


@pytest.mark.slow
def test_a_clipped_expert_is_stored_in_factors(tmp_path):
    clipped = prune_model(model_of("mixtral"), "1:expert_1:0.75")
    save_checkpoint(clipped, tmp_path / "new", factorised=[(1, "expert_1")])
    again = load_checkpoint(tmp_path / "new")
    close = functools.partial(np.testing.assert_allclose, rtol=1e-7, atol=1e-6)
    jax.tree.map(close, clipped.params, again.params)


def test_what_is_not_built_is_refused():
    with pytest.raises(ValueError, match="per_token: expected at most the 2 experts"):
        Experts(2, 3)
    dense = config_of("qwen3_moe", mlp_only_layers=[0])
    with pytest.raises(ValueError, match=r"mlp_only_layers: expected \[\], got \[0\]"):
        read_architecture(dense)
