"""The experiment on task diversity: its pools, its lines, a small run, its pictures."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from experiments import task_diversity
from experiments.frame.command_line import parse
from experiments.task_diversity import NEW, POOL, Pool
from icltheory import training
from icltheory.regression import LinearPopulation
from icltheory.statistics import Estimate

SMALL = """
    --preset cpu --recipe.dim 2 --recipe.num-points 4 --recipe.num-layers 1
    --recipe.width 8 --recipe.num-heads 2 --recipe.steps 20 --recipe.batch-size 8
    --recipe.chunk-steps 10 --recipe.checkpoint-every 10 --recipe.seeds 3 5
    --recipe.optimizer.name adam --recipe.optimizer.warmup-steps 0
    --pool-sizes 1 8 0 --eval-prompts 64 --theory-pools 16 --theory-prompts 64
    --ridge-draws 2000
"""
CONFIG = parse(task_diversity.PRESETS, SMALL.split()).config


def task():
    return LinearPopulation.isotropic(2, 0.25)


@pytest.mark.slow
def test_a_pool_draws_its_own_tasks_and_holds_the_smaller_pools():
    key, draw = jax.random.split(jax.random.key(0))
    small, large = (Pool(task(), key, size) for size in (3, 64))
    members = np.asarray(large.members(jnp.arange(64)))
    np.testing.assert_array_equal(small.members(jnp.arange(3)), members[:3])
    prompt = jax.jit(lambda key: small.sample(key, 4, 600))(draw)
    drawn, counts = np.unique(np.asarray(prompt.w), axis=0, return_counts=True)
    np.testing.assert_array_equal(drawn, np.unique(members[:3], axis=0))
    assert (abs(counts - 200) < 5 * np.sqrt(600 * 2 / 9)).all()
    # Labels are those of the tasks, with noise of the family; inputs are fresh.
    X, y = prompt.points()
    X, y, w = (np.asarray(values) for values in (X, y, prompt.w))
    noise = y - np.einsum("bpd,bd->bp", X, w)
    assert abs(noise.var() / 0.25 - 1) < 5 * np.sqrt(2 / noise.size)
    assert len(np.unique(X.reshape(-1, 2), axis=0)) == 3000


@pytest.mark.slow
def test_without_a_pool_every_prompt_has_a_new_gaussian_task():
    everywhere = Pool(task(), jax.random.key(1), 0)
    prompt = jax.jit(lambda key: everywhere.sample(key, 1, 2000))(jax.random.key(2))
    w = np.asarray(prompt.w)
    assert len(np.unique(w, axis=0)) == 2000
    np.testing.assert_allclose(np.cov(w.T), np.eye(2), atol=5 * np.sqrt(2 / 2000))


@pytest.mark.slow
def test_every_run_trains_as_it_would_alone_on_the_pool_of_its_seed():
    # Steps of Adam would magnify rounding where a gradient is near 0.
    sgd = training.OptimizerConfig("sgd", 0.1)
    recipe = dataclasses.replace(CONFIG.recipe, optimizer=sgd)
    config = dataclasses.replace(CONFIG, recipe=recipe, runs_at_once=2)
    start = task_diversity.initial_state(config)
    together = jax.jit(task_diversity.training_step(config))(start)[0]
    module, optimizer = recipe.module(), recipe.transformation()

    @jax.jit
    def alone(params, prompt):
        X, y = prompt.points()

        def loss(params):
            return jnp.mean((module.apply({"params": params}, X, y) - y) ** 2)

        updates, _ = optimizer.update(jax.grad(loss)(params), optimizer.init(params))
        return optax.apply_updates(params, updates)

    start, together = jax.device_get((start.params, together.params))
    for index, (size, seed) in enumerate(config.runs()):
        key = jax.random.fold_in(training.stream_key(seed, "data"), 0)
        pool = Pool.of_seed(recipe.task(), seed, size)
        first, own = (
            jax.tree.map(lambda leaf, i=index: leaf[i], params)
            for params in (start, together)
        )
        draw = jax.jit(lambda key, pool=pool: pool.sample(key, 3, recipe.batch_size))
        expected = alone(first, draw(key))
        jax.tree.map(
            lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), own, expected
        )


@pytest.fixture(scope="module")
def lines():
    return task_diversity.theory(CONFIG)


@pytest.mark.slow
def test_the_lines_are_what_is_known_without_a_simulation(lines):
    def near(estimate, value):
        assert abs(estimate.mean - value) < 5 * estimate.standard_error

    # One task: known on its pool, and |w - w_1|^2 / d has mean 2 elsewhere.
    assert lines["dmmse"][POOL][0].mean < 1e-12
    near(lines["dmmse"][NEW][0], 2.0)
    # A pool's tasks are Gaussian, so that ridge's average does not depend on M.
    for source in (POOL, NEW):
        for sampled in lines["ridge_sampled"][source]:
            near(sampled, lines["ridge"].mean)
    # dMMSE is optimal on the pool, ridge on new tasks.
    for gain in lines["ridge_minus_dmmse"][POOL]:
        assert gain.mean > 0
    for gain in lines["ridge_minus_dmmse"][NEW]:
        assert gain.mean < 0
    # Between the Bayes risk and that of predicting 0.
    assert lines["ridge"].mean < lines["one_layer"] < 1
    # A linear layer errs least on its own pool's tasks, and without a pool on new ones.
    layer = lines["linear_layer"]
    np.testing.assert_allclose(layer[NEW][-1], lines["one_layer"], rtol=1e-6)
    np.testing.assert_allclose(layer[POOL][-1], layer[NEW][-1], rtol=1e-6)
    assert np.all(layer[NEW] > lines["one_layer"] - 1e-6)


@pytest.mark.slow
def test_ridge_is_the_average_over_inputs(lines):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(4000, 4, 2))
    left = [np.ones(4000)]
    for k in range(1, 4):
        gram = np.einsum("bnd,bne->bde", X[:, :k], X[:, :k])
        C = 0.25 * np.linalg.inv(gram + 0.25 * np.eye(2))
        left.append(np.trace(C, axis1=1, axis2=2) / 2)
    risk = np.mean(left, axis=0)
    error = np.hypot(risk.std() / np.sqrt(4000), lines["ridge"].standard_error)
    assert abs(risk.mean() - lines["ridge"].mean) < 5 * error


def test_the_crossing_is_interpolated_in_the_logarithm():
    config = dataclasses.replace(CONFIG, pool_sizes=(1, 4, 16, 0))
    to_dmmse = np.array([[1.0, 1.0], [1.0, 1.0], [4.0, 1.0], [9.0, 9.0]])
    to_ridge = np.array([[8.0, 2.0], [2.0, 2.0], [1.0, 2.0], [1.0, 1.0]])
    table = {"transformer - ridge": to_ridge, "transformer - dMMSE": to_dmmse}
    first, second = task_diversity.crossings(config, table)
    # log-ratios log 2 and -log 4 at 4 and 16: a third of the way.
    assert first == pytest.approx(4 * 4 ** (1 / 3))
    assert np.isnan(second)


@pytest.mark.parametrize("shift", [0.0, 0.3])
def test_excess_risk_is_distance_for_the_posterior_mean_only(shift):
    rng = np.random.default_rng(1)
    bayes, noise = rng.normal(size=(2, 4000))
    model = bayes + rng.normal(size=4000)
    # An answer that knows something of the truth beyond the posterior mean.
    model = model + shift * noise
    truth = bayes + noise
    run = {
        "transformer": (model - truth) ** 2,
        "ridge": (bayes - truth) ** 2,
        "transformer - ridge": (model - bayes) ** 2,
    }
    measured = [{NEW: run}] * len(CONFIG.runs())
    z = task_diversity.pythagoras(CONFIG, measured, NEW)
    assert (z < 4) == (shift == 0)
    # A run without numbers, after one that has them, is no agreement.
    measured[-1] = {NEW: {name: np.nan * values for name, values in run.items()}}
    assert np.isnan(task_diversity.pythagoras(CONFIG, measured, NEW))


@pytest.mark.slow
def test_a_killed_run_ends_with_the_numbers_of_a_whole_one(
    small_run, tmp_path, interrupted
):
    folder, whole, pictures = small_run(task_diversity, SMALL)
    assert pictures == {"errors", "distances", "phases"}
    verdicts = {check["name"]: check["passed"] for check in whole["checks"]}
    for name, passed in verdicts.items():
        # Twenty steps teach nothing; what theory says holds all the same.
        assert passed or "transformer" in name or "pool:" in name, name

    with interrupted(1):
        task_diversity.main([*SMALL.split(), "--output", str(tmp_path)])
    (stopped,) = (tmp_path / "task_diversity").iterdir()
    resumed = task_diversity.main(["--resume", str(stopped)])
    for name in ("transformer", "theory", "crossings", "checks"):
        assert resumed[name] == whole[name], name
    lines = (stopped / "metrics.jsonl").read_text()
    assert lines == (folder / "metrics.jsonl").read_text()


def test_curves_show_their_numbers_and_no_pool_apart():
    def curve(means, errors, kind, method):
        pairs = zip(means, errors, strict=True)
        return [Estimate(*pair, 2) for pair in pairs], kind, method

    curves = {
        "line": curve([1.0, 0.5, 0.2], [0.1, 0.1, 0.1], "-", "dMMSE"),
        "dots": curve([0.9, 0.4, 0.3], [0.1, 0.9, 0.1], "o", "ridge"),
    }
    figure = task_diversity.draw(
        CONFIG, {POOL: curves, NEW: curves}, "", marks={POOL: 2}
    )
    axes = figure.axes[0]
    np.testing.assert_allclose(axes.get_lines()[0].get_ydata(), [1.0, 0.5, 0.2])
    np.testing.assert_allclose(axes.get_xticks(), [0, 3, 7.5])
    assert [t.get_text() for t in axes.get_xticklabels()] == ["1", "8", "no pool"]
    assert axes.get_yscale() == "log"
    texts = [t.get_text() for t in axes.texts]
    assert sorted(texts) == ["crosses at M = 2", "dots", "line"]
    assert len(figure.axes[1].texts) == 2
