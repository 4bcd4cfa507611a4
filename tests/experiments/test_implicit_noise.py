"""The noise of the implicit gradient: the split of the error, subsets, the run."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments import implicit_noise
from experiments.implicit_noise import (
    answers,
    least_squares_weights,
    query_design,
    split,
    subset_noise,
)
from icltheory.attention import LinearAttentionStack
from icltheory.constructions import gradient_descent
from icltheory.regression import LinearPopulation
from icltheory.regression.sources import Prompt
from icltheory.trajectory import implicit_gd

pytestmark = pytest.mark.usefixtures("float32")
TINY = """
    --preset cpu --eval-prompts 8 --queries 4 --gpt2.dim 2 --gpt2.num-points 5
    --gpt2.width 8 --gpt2.num-layers 1 --gpt2.num-heads 2 --gpt2.steps 20
    --gpt2.chunk-steps 10 --gpt2.optimizer.name adam --gpt2.optimizer.warmup-steps 2
    --stack.dim 2 --stack.num-points 7 --stack.steps 20 --stack.chunk-steps 10
    --stack.optimizer.warmup-steps 2 --shots 1 3 6 --parts 0 1 --subset-prompts 8
    --subsets 4
"""


@functools.partial(jax.jit, static_argnums=1)
def drawn(key, num_examples):
    """Four prompts of linear regression with d = 3."""
    task = LinearPopulation.isotropic(3, dtype=jnp.float32)
    return task.sample(key, num_examples, 4)


# --- the implied weight


def test_the_queries_make_a_fit_a_sum(key):
    X = np.asarray(query_design(key, 3, 12, 4))
    gram = np.einsum("bqd,bqe->bde", X, X)
    np.testing.assert_allclose(gram, np.tile(12 * np.eye(4), (3, 1, 1)), atol=1e-4)
    np.testing.assert_allclose(X.sum(axis=1), 0, atol=1e-5)


def test_a_linear_model_is_its_implied_weight_and_the_rest_is_curvature(key):
    rng = np.random.default_rng(0)
    prompt = drawn(key, 5)
    prefixes = jax.jit(lambda prompt: prompt.prefixes())(prompt)
    X = np.asarray(query_design(key, 4, 12, 3), np.float64)
    w, w_ls = np.asarray(prompt.w, np.float64), least_squares_weights(prefixes)
    w_hat = rng.normal(size=(4, 6, 3))
    values = np.einsum("bpd,bqd->bpq", w_hat, X)
    parts = split(values, X, w_ls, w)
    expected = ((w_hat - w[:, None]) ** 2).sum(axis=2) / 3
    np.testing.assert_allclose(parts["total"], expected, rtol=1e-5)
    np.testing.assert_allclose(parts["curvature"], 0, atol=1e-10)
    together = parts["shots"] + parts["training"] + parts["curvature"] + parts["cross"]
    np.testing.assert_allclose(together, parts["total"], rtol=1e-5)
    # an even function of the query is no weight at all
    square = split(values + (X**2).sum(axis=2)[:, None], X, w_ls, w)
    np.testing.assert_allclose(square["training"], parts["training"], rtol=1e-5)
    bent = ((X**2).sum(axis=2) ** 2).mean(axis=1)[:, None] / 3
    np.testing.assert_allclose(square["curvature"], np.tile(bent, 6), rtol=1e-5)


def test_least_squares_is_the_pseudo_inverse_and_ends_at_the_weight(key):
    prompt = drawn(key, 5)
    w_ls = least_squares_weights(prompt.prefixes())
    w = np.asarray(prompt.w, np.float64)
    np.testing.assert_array_equal(w_ls[:, 0], 0)
    x, y = np.asarray(prompt.X[:, 0], np.float64), np.asarray(prompt.y[:, 0])
    one = x * (y / (x**2).sum(axis=1))[:, None]
    np.testing.assert_allclose(w_ls[:, 1], one, rtol=1e-5)
    np.testing.assert_allclose(w_ls[:, 3:], np.tile(w[:, None], (1, 3, 1)), atol=1e-9)


@pytest.mark.slow
def test_answers_are_those_of_each_query_and_prefix(key):
    class Module:
        @staticmethod
        def apply(variables, X, y, asked):
            seen = jnp.cumsum(y, axis=1) - y
            return variables["params"] * seen + jnp.sum(asked, axis=2)

    prompt = LinearPopulation.isotropic(2, dtype=jnp.float32).sample(key, 3, 2)
    X = query_design(key, 2, 4, 2)
    got = answers(Module, jnp.float32(2.0), prompt.prefixes(), X)
    assert got.shape == (2, 4, 4)
    expected = 2 * prompt.y[1, :2].sum() + X[1, 3].sum()
    np.testing.assert_allclose(got[1, 2, 3], expected, rtol=1e-5)


# --- subsets


@pytest.mark.slow
def test_noise_of_layer_1_is_tr_C_over_all_subsets(key):
    # every subset once, so that the mean is the expectation
    N, d, b = 5, 2, 2
    rng = np.random.default_rng(0)
    X, w = rng.normal(size=(N, d)).astype(np.float32), np.ones(d, np.float32)
    stack = gradient_descent(jnp.full(2, 0.3, jnp.float32), d)
    H = np.hstack([X, (X @ w)[:, None]])
    G = implicit_gd(stack, H, scale=1 / N).G
    deviations, missed = [], []
    for chosen in itertools.combinations(range(N), b):
        G_b = implicit_gd(stack, H[list(chosen)], scale=1 / b).G
        deviations.append(((G_b - G) ** 2).sum(axis=(1, 2)) / (G**2).sum(axis=(1, 2)))
        w_ls = np.linalg.lstsq(X[list(chosen)], X[list(chosen)] @ w)[0]
        missed.append(((w_ls - w) ** 2).mean())
    one = (X[None], (X @ w)[None], X[:1], w[:1], w[None])
    prompt = Prompt(*map(jnp.asarray, one))
    noise = subset_noise(key, stack, prompt, (b, N), 4000)
    exact = np.mean(deviations, axis=0)
    np.testing.assert_allclose(noise["formula"][0, 0, 0], exact[0], rtol=1e-4)
    np.testing.assert_allclose(noise["shots"][0, 0], exact, rtol=0.1)
    np.testing.assert_allclose(noise["missed"][0, 0], np.mean(missed), atol=1e-6)
    for name in ("shots", "fresh", "gaussian", "formula"):
        np.testing.assert_allclose(noise[name][1], 0, atol=1e-9)
    # in the first layer all learners have the same covariance
    for name in ("fresh", "gaussian"):
        np.testing.assert_allclose(noise[name][0, 0, 0], exact[0], rtol=0.1)


@pytest.mark.slow
def test_a_step_of_gradient_descent_is_the_implied_weight_of_a_stack(key):
    prompt = drawn(key, 6)
    stack: LinearAttentionStack = gradient_descent(jnp.array([0.3], jnp.float32), 3)
    noise = subset_noise(key, stack, prompt, (6,), 2)
    w_1 = 0.3 * np.einsum("bnd,bn->bd", prompt.X, prompt.y) / 6
    off = ((w_1 - prompt.w) ** 2).mean(axis=1)
    np.testing.assert_allclose(noise["off"][0], off, rtol=1e-3)


# --- the run


@pytest.mark.slow
def test_a_small_run_writes_everything_it_promises_and_resumes(small_run):
    folder, result, pictures = small_run(implicit_noise, TINY)
    names = {path.name for path in folder.iterdir()} - {p + ".png" for p in pictures}
    written = {"config.json", "metrics.jsonl", "result.json", "report.html"}
    written |= {"timing.json", "checkpoints"}
    assert {name for name in names if not name.endswith(".svg")} == written
    assert pictures == {"sources", "subsets"}
    assert set(result["gpt2"]) == set(result["stack"]) == {"0", "20"}
    verdicts = {check["name"]: check["passed"] for check in result["checks"]}
    for name in ("the parts sum to the error", "noise of b = N", "shots from k = d"):
        assert verdicts[name]
    assert len(result["findings"]) == 5
    again = implicit_noise.main(["--resume", str(folder)])
    for part in ("gpt2", "stack", "checks"):
        assert again[part] == result[part]


# --- figures


def test_figures_draw_what_they_are_given():
    config, rng = implicit_noise.PRESETS["cpu"], np.random.default_rng(1)
    names = ("total", "shots", "training", "curvature")
    splits = {step: {name: rng.random((4, 11)) for name in names} for step in (0, 100)}
    bayes, last = np.linspace(1, 0.1, 11), splits[100]
    figure = implicit_noise.draw_sources(config, splits, bayes)
    left = (last["training"] + last["curvature"]).mean(axis=0)
    expected = (last["total"].mean(axis=0), bayes, left)
    for axes, curve in zip(figure.axes, expected, strict=True):
        lines = [line.get_ydata() for line in axes.get_lines()]
        assert any(np.allclose(y, curve) for y in lines if len(y) == 11)
        assert axes.get_yscale() == "log"
    names = implicit_noise.DEVIATIONS
    noises = {7: {name: rng.random((10, 4, 2)) for name in names}}
    figure = implicit_noise.draw_noise(config, noises)
    assert [axes.get_title() for axes in figure.axes] == ["layer 2"]
    lines = figure.axes[0].get_lines()
    assert [line.get_linestyle() for line in lines] == ["-", "-", "-", "--"]
    for line, name in zip(lines, names, strict=True):
        np.testing.assert_array_equal(line.get_xdata(), config.shots[:-1])
        middle = np.median(noises[7][name][:-1, :, 1], axis=1)
        np.testing.assert_allclose(line.get_ydata(), middle)
