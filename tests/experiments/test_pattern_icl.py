"""Pattern classification in context: small parts, the task of GPT-2, the whole way."""

import dataclasses
from functools import partial

import jax
import numpy as np
import pytest

from experiments import pattern_icl
from experiments.frame import Run
from experiments.shared.pattern_gpt2 import PairTask
from experiments.shared.patterns import PatternEnsemble
from icltheory.models import GPT2
from icltheory.patterns import PatternTask

CPU = pattern_icl.PRESETS["cpu"]
SMALL = PatternEnsemble(
    num_irrelevant=2,
    num_neurons=4,
    steps=2,
    record_every=1,
    batch_size=4,
    num_examples=6,
    seeds=(0, 1),
)
SHAPE = {"width": 8, "num_layers": 1, "steps": 2, "batch_size": 2, "chunk_steps": 2}
TINY = {
    "gpt": dataclasses.replace(
        CPU.gpt,
        **SHAPE,
        optimizer=dataclasses.replace(CPU.gpt.optimizer, warmup_steps=0),
    ),
    "gpt_seeds": (0, 1),
    "prompts": 64,
    "draws": 2,
    "gpt_prompts": 8,
    "gpt_sums": (1.1, 0.5),
    "sums": (1.1, 0.5),
    "lengths": (6,),
    "fractions": (0.6, 1.0),
    "alphas": (1.0, 0.5),
    "alpha_length": 4,
    "alpha_steps": 2,
    "alpha_every": 1,
    "baseline_lengths": (6,),
    "baseline_fractions": (0.8,),
    "baseline_prompts": 6,
}


def test_iterations_to_the_target_and_their_slope():
    steps, values = np.arange(10, 60, 10), np.array([1.0, 0.6, 0.3, 0.05, 0.2])
    hinge = np.broadcast_to(values, (2, 2, 5))
    for target, expected in ((0.1, 30 + 10 * 0.2 / 0.25), (2.0, 10), (0.01, np.nan)):
        found = pattern_icl.speed_of(np.array([1.0, 0.5]), steps, hinge, target)
        np.testing.assert_allclose(found["iterations"], expected)
    alphas, steps = np.array([1.0, 0.5, 0.25]), np.arange(0, 4001, 1)
    hit = 100 * alphas[:, None] ** (-2 / 3) * np.array([[1.0, 2.0]])
    hinge = 1 - 0.9 * steps[None, None] / hit[:, :, None]
    found = pattern_icl.speed_of(alphas, steps, hinge, 0.1)
    assert found["slope"] == pytest.approx(-2 / 3, abs=1e-6)
    assert found["slope error"] == pytest.approx(0, abs=1e-6)
    never = pattern_icl.speed_of(alphas, steps[:50], hinge[..., :50], 0.1)
    assert np.isnan(never["slope"])


@pytest.mark.slow
def test_gpt2_reads_pairs_and_answers_after_every_context(key):
    task = PatternTask(4, 4, 2.0)

    @jax.jit
    def both(key):
        drawn = PairTask(task, 0.8).sample(key, 4, 3, active_dims=8)
        prompt = task.sample(key, 4, 3)
        return drawn.points(), prompt, pattern_icl.prefix(prompt, 3)

    (X, y), prompt, part = both(key)
    assert X.shape == (3, 5, 8)
    np.testing.assert_array_equal(X[:, :4], prompt.X)
    np.testing.assert_array_equal(X[:, 4], prompt.x_query)
    np.testing.assert_array_equal(y[:, 4], prompt.z)
    shape = {"width": 8, "num_layers": 1, "num_heads": 2, "init_std": 0.3}
    module = GPT2(8, 5, token_layout="matrix", **shape)
    params = jax.jit(module.init)(key, prompt.X, prompt.y)["params"]
    answer = jax.jit(pattern_icl.margins_by_length, static_argnums=0)
    margins = answer(module, params, prompt)
    predict = jax.jit(partial(module.apply, method="predict"))
    alone = predict({"params": params}, part.X, part.y, part.x_query)
    np.testing.assert_allclose(margins[:, 3], alone * prompt.z, atol=1e-6)
    assert margins.shape == (3, 5)


def test_classifiers_find_the_nearest_pattern():
    X = np.repeat(3 * np.eye(2), 3, axis=0) + 0.01 * np.arange(6)[:, None]
    y = np.array([1.0, 1, 1, -1, -1, -1])
    for name, made in pattern_icl.classifiers().items():
        classify = partial(pattern_icl.classify, made, X)
        assert classify(y, np.array([3.0, 0.1])) == 1, name
        assert classify(y, np.array([0.1, 3.0])) == -1, name
        assert classify(-np.ones(6), X[0]) == -1, name


def test_the_law_of_a_miss_is_that_of_the_theory():
    config = dataclasses.replace(CPU, lengths=(1, 20))
    law = pattern_icl.miss_law(config)
    np.testing.assert_allclose(law[:, 0], [0.7, 0.6, 0.5], rtol=1e-6)
    assert law[1, 1] == pytest.approx(0.6**20, rel=1e-5)


@pytest.mark.slow
def test_the_way_through(tmp_path):
    # Both ensembles are the same, which saves a compilation.
    config = dataclasses.replace(CPU, figures=SMALL, shifted=SMALL, **TINY)
    run = Run.create(tmp_path, "pattern_icl", "tiny", config)
    found = pattern_icl.measure(config, run)
    result = run.finish(pattern_icl.report(config, found))
    names = [check["name"] for check in result["checks"]]
    assert len(set(names)) == len(names)
    assert {claim["held"] for claim in result["claims"]} <= {True, False}
    pictures = {path.name for path in run.folder.glob("*.png")}
    assert pictures == {"neurons.png", "sums.png", "lengths.png"}
    # Attention before training: (alpha / 2) e^(d^2 b^2) contexts of the pattern.
    pull = 0.4 * np.exp((SMALL.attention_scale * SMALL.scale) ** 2)
    before = result["mechanism"]["attention"]["mean"][0]
    assert before == pytest.approx(pull / (pull + 0.6), abs=0.05)
    methods = [row[1] for row in result["tables"][1]["rows"]]
    assert methods[2:] == list(pattern_icl.classifiers())
