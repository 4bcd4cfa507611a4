"""The linear surrogate of a decoder's layer against dense matrices and the library."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from icltheory import bounds, noise
from icltheory.attention import LinearAttentionStack
from icltheory.bridge import Architecture, Tokens, clip_module
from icltheory.bridge._blocks import Norm
from icltheory.bridge.surrogate import surrogate_terms
from icltheory.bridge.surrogate._layer import (
    Noise,
    attention_factors,
    support_dim,
    through_mlp,
)
from icltheory.pruning import rank_for_rate
from icltheory.trajectory import implicit_update
from tests.bridge.evaluation_tasks import classification, tiny
from tests.oracles import truncate

MATRICES = ("W_Q", "W_K", "W_V", "W_O")


def dense_update(arch, attn, x):
    """Lemma 1 of every head, with its matrices filled up with zeros to n x n."""
    W_Q, W_K, W_V, W_O = (np.asarray(attn[m]["weight"], np.float64) for m in MATRICES)
    n, d, shared = arch.width, arch.head_dim, arch.num_heads // arch.num_kv_heads
    total = np.zeros((n, n))
    for head in range(arch.num_heads):
        q = slice(head * d, (head + 1) * d)
        k = slice(head // shared * d, (head // shared + 1) * d)
        parts = np.zeros((3, n, n))
        parts[0] = W_O[:, q] @ W_V[k]
        parts[1, :d], parts[2, :d] = W_K[k], W_Q[q]
        total += np.asarray(implicit_update(*parts, x, scale=1 / (len(x) * d**0.5)))
    return total


def one_head(n, seed, layers=2):
    """Weights of layers with one head as wide as the stream, and their stack."""
    arch = Architecture(
        family="one",
        vocab_size=8,
        width=n,
        num_layers=layers,
        num_heads=1,
        num_kv_heads=1,
        head_dim=n,
        mlp_width=2 * n,
        max_positions=8,
    )
    W = np.random.default_rng(seed).normal(size=(layers, 4, n, n)) / n**0.5
    attn = [
        {"attn": {m: {"weight": w} for m, w in zip(MATRICES, each, strict=True)}}
        for each in W
    ]
    stack = LinearAttentionStack(W[:, 3] @ W[:, 2], W[:, 1], W[:, 0])
    return arch, attn, stack


@pytest.mark.slow
@pytest.mark.parametrize("family", ["gptj", "groups"])
def test_the_update_is_lemma_1_summed_over_heads(family):
    model = tiny(family)
    arch, params = model.arch, model.params["layers"][1]
    x = np.random.default_rng(0).normal(size=(9, arch.width))
    V, U = attention_factors(arch, params, x)
    update = dense_update(arch, params["attn"], x)
    np.testing.assert_allclose(V.T @ U, update, rtol=1e-9, atol=1e-12)
    V, U = through_mlp((V, U), params)
    inner, outer = (
        np.asarray(params["mlp"][m]["weight"], np.float64) for m in ("W_in", "W_out")
    )
    np.testing.assert_allclose(V.T @ U, outer @ inner @ update, rtol=1e-9, atol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("N", [16, 7])
def test_with_one_head_it_is_theorem_2_of_a_frozen_stack(N):
    n, b = 4, 3
    arch, layers, stack = one_head(n, seed=N)
    x = np.random.default_rng(1).normal(size=(N, n))
    given = {"demo_updates": "frozen", "scale": 1 / (N * n**0.5)}

    @jax.jit
    def both(x):
        return [
            bounds.generalization_bound(stack, x, b, 0.5, jitter=jitter, **given)
            for jitter in (None, "ledoit_wolf")
        ]

    exact, shrunk = jax.device_get(both(x))
    P = np.eye(n)
    for t, params in enumerate(layers):
        V, U = attention_factors(arch, params, x)
        found = Noise.of((V, U), jnp.asarray(P), np.arange(N), N, b)
        P = P + np.asarray(V).T @ np.asarray(U) @ P
        dim = int(exact.support_dim[t])
        assert dim == 10
        assert found.rank(dim) == exact.rank[t]
        assert np.isfinite(found.term(dim)) == (dim <= N - 1)
        np.testing.assert_allclose(found.term(dim), exact.terms[t], rtol=1e-8)
        np.testing.assert_allclose(found.shrunk_term(dim), shrunk.terms[t], rtol=1e-8)


@pytest.mark.slow
def test_demonstrations_of_several_tokens_are_sums_over_tokens_and_heads():
    model, N, b = tiny("groups"), 4, 2
    arch, params = model.arch, model.params["layers"][0]
    rng = np.random.default_rng(2)
    groups = np.repeat(np.arange(N), [3, 1, 2, 4])
    x = rng.normal(size=(len(groups), arch.width))
    P = jnp.asarray(rng.normal(size=(arch.width, arch.width)))
    found = Noise.of(attention_factors(arch, params, x), P, groups, N, b)
    each = [
        np.ravel(dense_update(arch, params["attn"], x[groups == i]) @ P)
        * (groups == i).sum()
        / len(groups)
        for i in range(N)
    ]
    total = np.sum(each, axis=0)
    centred = np.array(each) - total / N
    kappa = (N - b) / (b * (N - 1))
    values = np.linalg.svd(centred, compute_uv=False) ** 2 * kappa * N
    np.testing.assert_allclose(found.eigenvalues[:-1], values[:-1], rtol=1e-8)
    np.testing.assert_allclose(found.trace, values.sum(), rtol=1e-8)
    np.testing.assert_allclose(found.G_norm, np.linalg.norm(total), rtol=1e-8)
    assert found.rank(dim=50) == N - 1


@pytest.mark.slow
@pytest.mark.parametrize("cut", [{}, {"W_V": 2}, {"W_Q": 3, "W_O": 4}, {"W_K": 1}])
def test_the_dimension_is_that_of_the_weights(cut):
    n = 6
    arch, _, stack = one_head(n, seed=3, layers=1)
    W = {"W_V": stack.W_V[0], "W_K": stack.W_K[0], "W_Q": stack.W_Q[0]}
    names = {"W_O": "W_V"}
    for name, rank in cut.items():
        own = names.get(name, name)
        W[own] = truncate(W[own], rank)
    pruned = LinearAttentionStack(*(W[m][None] for m in ("W_V", "W_K", "W_Q")))
    ranks = dict.fromkeys(MATRICES, n) | cut
    (expected,) = noise.support_dims(pruned).tolist()
    assert support_dim(arch, ranks, with_mlp=False) == expected


def image_dim(arch, ranks, rng):
    """Dimension of all gradients of random weights, by a basis of X."""
    n, d, shared = arch.width, arch.head_dim, arch.num_heads // arch.num_kv_heads

    def low(rows, columns, rank):
        return rng.normal(size=(rows, rank)) @ rng.normal(size=(rank, columns))

    W_Q, W_O = (low(arch.num_heads * d, n, ranks[m]) for m in ("W_Q", "W_O"))
    W_K, W_V = (low(arch.num_kv_heads * d, n, ranks[m]) for m in ("W_K", "W_V"))
    images = []
    for i, j in zip(*np.tril_indices(n), strict=True):
        X = np.zeros((n, n))
        X[i, j] = X[j, i] = 1
        image = 0
        for head in range(arch.num_heads):
            q = slice(head * d, (head + 1) * d)
            k = slice(head // shared * d, (head // shared + 1) * d)
            image = image + W_O[q].T @ W_V[k] @ X @ W_K[k].T @ W_Q[q]
        images.append(np.ravel(image))
    return np.linalg.matrix_rank(np.array(images))


@pytest.mark.parametrize(("heads", "groups", "d"), [(3, 3, 2), (4, 2, 2), (2, 1, 3)])
def test_the_dimension_holds_for_several_heads(heads, groups, d):
    n, rng, equal = 7, np.random.default_rng(heads), []
    arch = Architecture(
        family="many",
        vocab_size=8,
        width=n,
        num_layers=1,
        num_heads=heads,
        num_kv_heads=groups,
        head_dim=d,
        mlp_width=9,
        max_positions=8,
    )
    sizes = {m: min(n, heads * d) for m in ("W_Q", "W_O")}
    sizes |= {m: min(n, groups * d) for m in ("W_K", "W_V")}
    for trial in range(20):
        ranks = {m: int(rng.integers(1, size + 1)) for m, size in sizes.items()}
        ranks = ranks if trial else sizes
        found, true = support_dim(arch, ranks, False), image_dim(arch, ranks, rng)
        assert found >= true
        equal.append(found == true)
    assert equal[0]
    assert np.mean(equal) >= 0.9
    thin = sizes | {"W_in": 1, "W_out": n}
    assert support_dim(arch, thin, True) <= sizes["W_Q"]


def walk(model, layer, mute, task, example):
    """A prompt without any cache, as one program, and where its demonstrations end.

    What every layer reads, and what attention to the demonstrations adds to the last
    token in one layer, whose weights are given without an MLP.
    """
    encode, arch = model.tokenizer.encode, model.arch
    demos = len(encode(task.prefix()))
    norm = Norm(arch.norm, arch.norm_eps)

    @jax.jit
    def run(params, mute, ids):
        stream, read = model.embed(params, Tokens(ids, jnp.ones(ids.shape, bool))), []
        for t, weights in enumerate(params["layers"]):
            read.append(norm.apply({"params": weights["norm_1"]}, stream.h)[0])
            if t == layer:
                mask = stream.mask
                whole, alone = (
                    model.decoder.run_block(mute, stream._replace(mask=m))[0].h[0, -1]
                    for m in (mask, mask.at[:, :demos].set(False))
                )
            stream = model.block(t, params, stream)
        return read, whole - alone

    ids = jnp.asarray([encode(task.prefix() + task.query(example))])
    read, added = jax.device_get(run(model.params, mute, ids))
    return demos, [x.astype(np.float64) for x in read], added


def test_norms_behind_attention_are_refused():
    model, task = tiny("mixed"), classification(count=2, demonstrations=4)
    with pytest.raises(ValueError, match="model: models with a norm after attention"):
        surrogate_terms(model, task, [0], [0])


@pytest.mark.slow
@pytest.mark.parametrize("family", ["gptj", "groups"])
def test_rows_agree_with_a_dense_oracle_on_the_model(family):
    sizes = {"max_positions": 300, "sliding_window": None, "num_layers": 2}
    model, layer, rate = tiny(family, **sizes), 1, 0.5
    task, arch = classification(count=2, demonstrations=4), model.arch
    rows = surrogate_terms(model, task, [layer], [0, rate], num_queries=9)
    assert [(row.layer, row.rate) for row in rows] == [(1, 0), (1, rate)]
    params = clip_module(model, layer, "attn", rate).params["layers"][layer]
    silent = jax.tree.map(np.zeros_like, params["mlp"]["W_out"])
    mute = {**params, "mlp": {**params["mlp"], "W_out": silent}}
    P, cosines = np.eye(arch.width), []
    for example in task.validation:
        demos, xs, real = walk(model, layer, mute, task, example)
        update = dense_update(arch, params["attn"], xs[layer][1:demos])
        guess = update @ xs[layer][-1]
        cosines.append(real @ guess / np.linalg.norm(real) / np.linalg.norm(guess))
    for t in range(layer):
        P = (
            P
            + dense_update(arch, model.params["layers"][t]["attn"], xs[t][1:demos]) @ P
        )
    assert rows[1].update_norm == pytest.approx(np.linalg.norm(update), rel=1e-4)
    assert rows[1].G_norm == pytest.approx(np.linalg.norm(update @ P), rel=1e-4)
    assert rows[1].cosine == pytest.approx(np.mean(cosines), abs=1e-3)
    error = np.std(cosines, ddof=1) / 2**0.5
    assert rows[1].cosine_error == pytest.approx(error, abs=1e-3)
    shapes = {m: params["attn"][m]["weight"].shape for m in MATRICES}
    ranks = {m: rank_for_rate(shape, rate) for m, shape in shapes.items()}
    assert rows[1].dim == support_dim(arch, ranks, with_mlp=False)
    assert rows[1].term == np.inf
    assert "rank 3 (N = 4)" in rows[1].reason
    assert np.isfinite(rows[1].shrunk_bound)


@pytest.mark.slow
def test_pruning_moves_the_rows_that_it_should():
    model, task = tiny("gptj", max_positions=300), classification(3, 4)
    attn = surrogate_terms(model, task, [0, 1], [0, 0.5], num_queries=2)
    mlp = surrogate_terms(model, task, [1], [0, 0.5], num_queries=2, module="mlp")
    assert [row.layer for row in attn] == [0, 0, 1, 1]
    assert attn[0].update_norm == attn[0].G_norm
    assert attn[1].update_norm != attn[0].update_norm
    assert mlp[0].cosine == mlp[1].cosine == attn[2].cosine
    assert mlp[1].update_norm != mlp[0].update_norm


def test_the_whole_pool_leaves_no_noise():
    model, task = tiny("gptj", max_positions=300), classification(3, 4)
    calls = []
    progress = {"progress": lambda *call: calls.append(call)}
    (row,) = surrogate_terms(model, task, [0], [0], shots=4, num_queries=2, **progress)
    assert calls == [(0, 1, ""), (1, 1, "layer 0")]
    assert (row.noise_trace, row.term) == (0.0, np.inf)
    assert row.reason.startswith("b = N")
    with pytest.raises(ValueError, match="shots"):
        surrogate_terms(model, task, [0], [0], shots=5)


@pytest.mark.parametrize(
    ("layers", "num_queries", "message"),
    [
        ([-1], 2, "layers: expected one of 0, 1, got -1"),
        ([0, 9], 2, "layers: expected one of 0, 1, got 9"),
        ([], 2, "layers: expected at least one, got none"),
        ([0], 0, "num_queries: expected a positive integer, got 0"),
        ([0], -1, "num_queries: expected a positive integer, got -1"),
    ],
)
def test_layers_and_numbers_of_questions_are_checked(layers, num_queries, message):
    model, task = tiny("gptj", num_layers=2), classification(2, 4)
    with pytest.raises(ValueError, match=f"^{message}"):
        surrogate_terms(model, task, layers, [0], num_queries=num_queries)
    with pytest.raises(ValueError, match="^rates: expected at least one, got none"):
        surrogate_terms(model, task, [0], ())
