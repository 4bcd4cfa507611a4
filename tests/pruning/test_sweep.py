import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from icltheory.attention import LinearAttentionStack
from icltheory.layered import LayeredStack, forward
from icltheory.models import GPT2, LayeredGPT2
from icltheory.pruning import (
    Intervention,
    LowRank,
    Magnitude,
    Scored,
    Whitened,
    module_spectra,
    prune_model,
    sweep,
    sweep_grid,
    sweeps,
)
from icltheory.pruning.sweeps import Program, _run
from tests.oracles import truncate
from tests.pruning.models import (
    INPUTS,
    MODEL,
    RATES,
    SCORED,
    STACK,
    TARGETS,
    B,
    L,
    N,
    draws,
    errors,
    traces,
)
from tests.raising import raises


def swept(layer, module, rates=RATES, **options):
    given = {"params": STACK, "inputs": INPUTS, "args": (TARGETS,)}
    given |= {name: options.pop(name) for name in given if name in options}
    return sweep(Scored(MODEL, score=errors, **given), layer, module, rates, **options)


def sparsify(W, kept):
    bar = np.sort(np.abs(W).ravel())[::-1][kept - 1]
    return np.where(np.abs(W) >= bar, W, 0)


whole = jax.jit(functools.partial(forward, MODEL))


@pytest.mark.slow
@pytest.mark.parametrize("method", [LowRank(), Magnitude()])
def test_a_sweep_is_one_full_evaluation_for_every_rate(method):
    cut = truncate if method.spectral else sparsify
    kept = (6, 5, 3, 1) if method.spectral else (36, 32, 18, 9)
    for layer, module, names in ((3, "attn", "VKQ"), (1, "W_K", "K")):
        got = swept(layer, module, method=method)
        assert got.shape == (len(RATES), B)
        for scores, size in zip(got, kept, strict=True):
            weights = {k: np.array(getattr(STACK, f"W_{k}")) for k in "VKQ"}
            for name in names:
                weights[name][layer] = cut(weights[name][layer], size)
            pruned = LinearAttentionStack(**{f"W_{k}": W for k, W in weights.items()})
            expected = np.sum((whole(pruned, INPUTS) - TARGETS) ** 2, axis=-1)
            np.testing.assert_allclose(scores, expected, rtol=1e-12)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Scaled(Magnitude):
    factor: float

    def by_size(self, W, parts=None):
        cut = super().by_size(W, parts)
        return lambda kept: self.factor * cut(kept)


def test_a_method_of_ones_own_keeps_its_fields():
    method = Scaled(factor=2.0)
    pruned = prune_model(MODEL, STACK, "3:W_K:0.5", method=method)
    expected = np.sum((whole(pruned, INPUTS) - TARGETS) ** 2, axis=-1)
    got = swept(3, "W_K", [0.5], method=method)[0]
    np.testing.assert_allclose(got, expected, rtol=1e-12)


@pytest.mark.slow
def test_it_compiles_once_and_then_takes_other_rates_and_weights():
    swept(3, "W_V")
    before = len(traces)
    swept(3, "W_V", (0.2, 0.3, 0.6, 0.8))
    swept(3, "W_V", params=jax.tree.map(lambda W: 2 * W, STACK))
    swept(3, "W_V", args=(TARGETS + 1,))
    swept(3, "W_V", method=LowRank(rule="ceil"))
    assert len(traces) == before
    swept(3, "W_V", (0.2, 0.3))  # another number of rates is another shape
    assert len(traces) == before + 1


@pytest.mark.slow
def test_rates_side_by_side_and_one_prompt_agree():
    expected = swept(2, "attn")
    for batch_size in (3, 4, 9):  # with a remainder, exact, and more than there are
        got = swept(2, "attn", batch_size=batch_size)
        np.testing.assert_allclose(got, expected, rtol=1e-12)
    prompt, model = (INPUTS[0][1], INPUTS[1][1]), LayeredStack.of(STACK, scale=1 / N)
    one = sweep(Scored(model, STACK, prompt, errors, (TARGETS[1],)), 2, "attn", RATES)
    np.testing.assert_allclose(one, expected[:, 1], rtol=1e-12)


@pytest.mark.parametrize("dtype", ["float64", "bfloat16"])
@pytest.mark.parametrize("method", [LowRank(), Magnitude(), Whitened()])
def test_the_full_size_is_the_weight_bit_for_bit_also_when_traced(method, dtype):
    W = draws(4, 6).astype(dtype)
    whole = method.kept(W.shape, 0)
    cut = jax.jit(jax.vmap(lambda size: method.by_size(W)(size)))
    same, other = cut(jnp.array([whole, whole - 1]))
    assert same.dtype == W.dtype
    assert np.asarray(same).tobytes() == np.asarray(W).tobytes()
    assert np.asarray(other).tobytes() != np.asarray(W).tobytes()


def test_rate_zero_scores_the_model_as_it_is():
    for method in (LowRank(), Magnitude(), Whitened()):
        got = swept(3, "attn", method=method)[0]
        expected = np.sum((whole(STACK, INPUTS) - TARGETS) ** 2, axis=-1)
        np.testing.assert_allclose(got, expected, rtol=1e-14)


def test_the_grid_is_the_sweep_of_every_pair():
    layers, modules = (3, 0, 2), ("W_V", "attn", "W_Q")
    grid = sweep_grid(SCORED, layers, modules, RATES)
    assert grid.shape == (3, 3, len(RATES), B)
    for i, layer in enumerate(layers):
        np.testing.assert_allclose(grid[i, 1], swept(layer, "attn"), rtol=1e-12)
    np.testing.assert_allclose(grid[0, 0], swept(3, "W_V"), rtol=1e-12)
    np.testing.assert_array_equal(grid[:, 0, 0], grid[:, 2, 0])


def test_the_grid_and_the_spectra_report_their_progress():
    calls = []
    progress = {"progress": lambda *call: calls.append(call)}
    sweep_grid(SCORED, (1, 0), ("attn",), RATES, **progress)
    assert calls == [(0, 2, ""), (1, 2, "layer 0"), (2, 2, "layer 1")]
    calls.clear()
    module_spectra(MODEL, STACK, layers=[1], **progress)
    assert [part for _, _, part in calls[1:]] == [
        f"layer 1, {name}" for name in ("W_V", "W_K", "W_Q")
    ]


def test_the_grid_runs_the_trunk_once(monkeypatch):
    ran, block = [], sweeps._block
    monkeypatch.setattr(sweeps, "_block", lambda *a: ran.append(a[1]) or block(*a))
    sweep_grid(SCORED, (3, 1), ("attn",), RATES)
    assert ran == [0, 1, 2]


def test_scores_may_be_any_pytree():
    def score(outputs):
        return {"norm": jnp.sum(outputs**2), "outputs": outputs}

    got = sweep(Scored(MODEL, STACK, INPUTS, score), 3, "W_V", RATES)
    assert got["norm"].shape == (len(RATES),)
    np.testing.assert_allclose(got["outputs"][0], whole(STACK, INPUTS), rtol=1e-12)


@pytest.mark.slow
def test_gpt2_in_float32_equals_full_evaluations():
    module = GPT2(dim=3, num_positions=10, width=16, num_layers=3, num_heads=2)
    X, y = (
        jnp.asarray(np.asarray(draws(*shape, seed=seed), np.float32))
        for seed, shape in enumerate(((B, 5, 3), (B, 5)))
    )
    shapes = jax.eval_shape(module.init, jax.random.key(0), X, y)["params"]
    rng = np.random.default_rng(2)
    params = jax.tree.map(
        lambda s: jnp.asarray(0.3 * rng.normal(size=s.shape).astype(s.dtype)), shapes
    )
    model, rates = LayeredGPT2(module), (0, 0.1, 0.5, 0.9)
    got = sweep(Scored(model, params, (X, y), errors, (y,)), 2, "all", rates)
    assert got.dtype == jnp.float32
    run = jax.jit(functools.partial(forward, model))
    for scores, rate in zip(got, rates, strict=True):
        pruned = prune_model(model, params, Intervention(2, "all", rate))
        answers = np.asarray(run(pruned, (X, y)))
        expected = np.sum((answers - np.asarray(y)) ** 2, axis=-1)
        np.testing.assert_allclose(scores, expected, rtol=1e-5)
    got = np.asarray(got)
    assert np.abs(got[-1] / got[0] - 1).max() > 1e-3


@pytest.mark.slow
def test_a_leaf_with_all_layers_is_not_copied_for_every_rate():
    """Layers above the pruned one read the parameters as they are."""
    deep, wide, rates = 24, 32, 8
    stack = LinearAttentionStack(*draws(3, deep, wide, wide))
    model = LayeredStack.of(stack)
    names = ("W_V", "W_K", "W_Q")
    program = Program(model, deep // 2, jnp.sum, LowRank(), names, True, rates)
    inputs = draws(2, wide), draws(wide)
    kept = np.full((rates, 3), 4, np.int32)
    lowered = _run.lower(program, stack, inputs, kept, ())
    used = lowered.compile().memory_analysis().temp_size_in_bytes
    leaf = stack.W_V.nbytes
    assert (
        used < 3 * rates * leaf / 2
    )  # a copy of each leaf for each rate is twice that


@pytest.mark.usefixtures("as_for_a_user")
def test_bad_input():
    with raises("rates: expected numbers in [0, 1), got 1"):
        swept(1, "attn", (0, 1))
    with raises("rule: expected one of 'floor', 'nearest', 'ceil', got 'up'"):
        LowRank(rule="up")
    with raises("method: expected LowRank, Whitened or Magnitude, got 'l1'"):
        swept(1, "attn", method="l1")
    with raises("layer: expected 0 to 3, got 4"):
        swept(L, "attn")
    with raises("batch_size: expected a positive integer, got 0"):
        swept(1, "attn", batch_size=0)
    bad = LinearAttentionStack(STACK.W_V, STACK.W_K.at[3, 0, 0].set(jnp.nan), STACK.W_Q)
    with raises("W_K: expected finite entries, got NaN or infinity"):
        swept(3, "attn", params=bad)
    with raises("layers: expected at least one, got none"):
        sweep_grid(SCORED, (), ("attn",), RATES)
    with raises("modules: expected at least one, got none"):
        sweep_grid(SCORED, (0,), (), RATES)
