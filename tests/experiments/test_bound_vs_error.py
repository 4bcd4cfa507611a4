"""Errors against bounds: replicates, estimates, the run with its resume, pictures."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, stats

from experiments import bound_vs_error as experiment
from experiments.bound_vs_error import GENERIC, NAMES, REFERENCE, Config, Learner, Row
from icltheory import bounds
from icltheory.noise import noisy_trajectory

# For this target the plan asks for N = 12.
TINY = """
    --preset cpu --replicates 16 --rows 5 12 4 2 --generic 12 4 --pool-sizes 10 12
    --sweep-shots 4 --targets 0.9
"""
GD, DENSE = Row(2, 16, 6, 2), Row(2, 16, 6, 1, generic=True)


# --- the population's side


def test_the_expected_clipped_loss_is_the_integral():
    task = np.array([0.6, -0.8])
    for w in (task, np.zeros(2), np.array([3.0, 1.0])):
        scale = math.sqrt(((w - task) ** 2).sum() + 0.25)
        edge = math.sqrt(2) / scale

        def density(z, s=scale):
            return min((s * z) ** 2, 2) * stats.norm.pdf(z)

        expected = integrate.quad(density, -40, 40, points=[-edge, edge], limit=200)[0]
        found = experiment.population_loss(jnp.asarray(w), jnp.asarray(task))
        np.testing.assert_allclose(found, expected, rtol=1e-9)


@pytest.mark.slow
def test_moments_of_the_gradients_are_those_of_gaussian_tokens():
    """Isserlis' theorem term by term, and the closed form of gradient descent."""
    stack, _, task = experiment.learner_of(DENSE, 0)
    dense = Learner(stack, jnp.eye(9).reshape(3, 3, 9), task)
    W = np.random.default_rng(0).normal(size=(3, 3))
    mean, cov = experiment.population(dense, jnp.asarray(W))
    P, task = np.eye(3) + W, np.asarray(task)
    V, K, Q = (np.asarray(w[0]) for w in (stack.W_V, stack.W_K, stack.W_Q))
    M = np.block([[np.eye(2), task[:, None]], [task[None], np.array([[1.25]])]])
    maps = np.einsum("ia,bj->ijab", V @ P, P.T @ K.T @ Q @ P).reshape(9, 3, 3)
    expected = np.einsum("kab,ab->k", maps, M)
    np.testing.assert_allclose(mean, expected, rtol=1e-12)
    fourth = sum(
        np.einsum(f"{pairs}->abcd", M, M) for pairs in ("ab,cd", "ac,bd", "ad,bc")
    )
    second = np.einsum("kab,lcd,abcd->kl", maps, maps, fourth)
    np.testing.assert_allclose(cov, second - np.outer(expected, expected), atol=1e-10)

    learner, W = experiment.learner_of(GD, 0), np.zeros((3, 3))
    W[2, :2] = [0.3, -0.2]
    u = np.asarray(learner.task) + W[2, :2]
    mean, cov = experiment.population(learner, jnp.asarray(W))
    np.testing.assert_allclose(mean, -u / 2, atol=1e-12)
    spread = (u @ u + 0.25) * np.eye(2) + np.outer(u, u)
    np.testing.assert_allclose(cov, spread / 4, atol=1e-12)
    # two steps of 1/2 on the population
    np.testing.assert_allclose(experiment.anchor(learner), 0.75 * learner.task)


# --- replicates


@pytest.mark.slow
@pytest.mark.parametrize("row", [GD, DENSE], ids=["gradient descent", "dense"])
def test_theorem2_gives_the_bounds_of_the_replicates_on_the_same_draws(row, key):
    learner, (_, N, b, *_), B = experiment.learner_of(row, 0), row, 3
    keys = jax.random.split(key, 3)
    split = [jax.random.split(k, B) for k in keys]
    one = jax.vmap(lambda *keys: experiment.replicate(keys, b, learner, N))
    sample = jax.tree.map(np.asarray, jax.jit(one)(*split))
    found = experiment.variants(row, sample, learner.basis.shape[-1])
    dense = learner._replace(basis=jnp.eye(9).reshape(3, 3, 9))
    H = jax.vmap(lambda k: experiment.draw_tokens(k, learner.task, N))(split[0])

    def center(layer, W):
        return experiment.population(dense, W, layer)[0].reshape(W.shape)

    def prior(layer, W):
        return experiment.population(dense, W, layer)[1] / b

    @jax.jit
    def all_values(H):
        steps = bounds.noisy_steps(learner.stack, H, b, scale=1 / N, key=keys[1])
        printed, given = steps.norm_product(), {"center": center, "prior": prior}
        return {
            "inside": bounds.log_inside_bound(printed, 1.0),
            "frobenius": bounds.isotropic_bound(printed, 1.0),
            "exact": bounds.isotropic_bound(steps, 1.0),
            "centred": bounds.isotropic_bound(steps.centred(center), 1.0),
            "anisotropic": bounds.anisotropic_bound(steps, 1.0, **given),
            "held_out_half": bounds.held_out_bound(steps, 1.0, 8),
            "held_out_most": bounds.held_out_bound(steps, 1.0, 15),
            "held_out_all_but_one": bounds.held_out_bound(steps, 1.0, 15),
        }

    assert experiment.held_out_sizes(N) == (8, 15, 15)
    for name, bound in all_values(H).items():
        value, influence = found[name]
        np.testing.assert_allclose(value, bound.value, rtol=1e-9)
        error = experiment.estimate(value, influence)["se"]
        # NaN there and 0 here where the bound is infinite
        np.testing.assert_allclose(
            error, np.nan_to_num(bound.standard_error), rtol=1e-6
        )


@pytest.mark.slow
def test_the_printed_bound_is_infinite_by_both_routes(key):
    row = Row(1, 8, 4, 1)
    learner = experiment.learner_of(row, 0)
    H = experiment.draw_tokens(key, learner.task, 8)
    steps = bounds.noisy_steps(learner.stack, H, 4, scale=1 / 8)
    bound = float(bounds.printed_bound(steps, 1.0).value)
    assert experiment.printed_bound(learner, row) == bound == math.inf


@pytest.mark.slow
def test_errors_are_expected_less_training_loss_of_both_learners(key):
    learner, N, b = experiment.learner_of(GD, 0), 16, 6
    keys = jax.random.split(key, 3)
    one = jax.jit(lambda keys: experiment.replicate(keys, b, learner, N))(keys)
    H = np.asarray(experiment.draw_tokens(keys[0], learner.task, N))
    X, y, task = H[:, :2], H[:, 2], np.asarray(learner.task)
    path = noisy_trajectory(learner.stack, H, b, key=keys[1], scale=1 / N)
    w, det_w = -np.asarray(path.W[-1])[2, :2], np.zeros(2)
    for _ in range(2):
        det_w = det_w + 0.5 * X.T @ (y - X @ det_w) / N

    def losses(w, tokens):
        return [min((h[2] - h[:2] @ w) ** 2, 2) for h in np.asarray(tokens)]

    def gap(w):
        expected = experiment.population_loss(jnp.asarray(w), jnp.asarray(task))
        return float(expected) - np.mean(losses(w, H))

    anchor = gap(0.75 * task)
    np.testing.assert_allclose(one["det_w"], det_w, atol=1e-12)
    np.testing.assert_allclose(one["error"], gap(w) - anchor, atol=1e-12)
    np.testing.assert_allclose(one["det_error"], gap(det_w) - anchor, atol=1e-12)
    fresh = experiment.draw_tokens(jax.random.fold_in(keys[0], 1), learner.task, N)
    assert not np.any(fresh == H)
    for name, at in (("pair_losses", w), ("det_pair_losses", det_w)):
        both = np.stack([losses(at, H), losses(at, fresh)], axis=-1)
        np.testing.assert_allclose(2 * one[name], both, atol=1e-12)
    noise = np.asarray(jax.random.normal(keys[2], (2,)))
    change = gap(det_w) - gap(det_w - math.sqrt(0.1 / N) * noise)
    train, population = one["changes"][:, 1, 1]
    np.testing.assert_allclose(train - population, change, atol=1e-12)


@pytest.mark.slow
def test_the_gap_of_the_anchor_has_mean_zero(key):
    learner = experiment.learner_of(DENSE, 0)
    anchor = experiment.anchor(learner)

    def loss(key):
        H = experiment.draw_tokens(key, learner.task, 6)
        return jnp.mean(experiment.clipped_losses(anchor, H))

    losses = np.asarray(jax.jit(jax.vmap(loss))(jax.random.split(key, 20000)))
    gap = float(experiment.population_loss(anchor, learner.task)) - losses.mean()
    assert abs(gap / losses.std() * math.sqrt(len(losses))) < 5


# --- estimates


def made_up(config, row):
    """Replicates of a row that nothing simulated; the same whenever they are asked."""
    B, L = config.replicates_of(row), row.num_layers
    rng = np.random.default_rng([row.dim, row.num_demos, row.shots, L])
    exact = rng.gamma(50.0, size=(B, L))
    gaps = ("error", "risk", "det_error", "det_risk")
    return {
        **{"exact": exact, "frobenius": 2 * exact, "centred": exact / 2},
        "trace": rng.gamma(5.0, size=(B, L)),
        "log_det": rng.normal(size=(B, L)) - 4,
        "anisotropic": rng.gamma(3.0, size=(B, L)),
        "held_out": rng.gamma(3.0, size=(B, 3, L)),
        **{name: rng.normal(0.1, 0.02, size=B) for name in gaps},
        "det_w": rng.normal(size=(B, row.dim)) / 5,
        "changes": rng.normal(0.02, 0.01, size=(B, 2, 4, 2)),
        "pair_losses": rng.uniform(size=(B, 8, 2)),
        "det_pair_losses": rng.uniform(size=(B, 8, 2)),
    }


@pytest.mark.slow
def test_standard_errors_are_those_of_the_jackknife(monkeypatch):
    monkeypatch.setattr(experiment, "SMOOTHING", experiment.SMOOTHING[:2])
    row, config = Row(2, 40, 20, 2), Config(replicates=256, work=2**18)
    sample, B = made_up(config, row), 256
    without = [
        {k: np.delete(v, i, axis=0) for k, v in sample.items()} for i in range(B)
    ]
    whole = experiment.variants(row, sample, 2)
    left_out = [experiment.variants(row, one, 2) for one in without]
    for name in ("inside", *NAMES):
        values = np.array([each[name][0] for each in left_out])
        error = experiment.estimate(*whole[name])["se"]
        assert math.isclose(error, math.sqrt((B - 1) * values.var()), rel_tol=0.03), (
            name
        )
    smooth = experiment.smoothing(row, sample)
    values = [experiment.smoothing(row, one) for one in without]
    assert {each["c"] for each in values} == {smooth["c"]}
    jackknife = math.sqrt((B - 1) * np.var([each["value"] for each in values]))
    assert math.isclose(smooth["se"], jackknife, rel_tol=0.05)
    # opposite pairs of independent changes halve their variance
    assert smooth["single_spread"] > smooth["spread"]


def test_the_supersample_bound_is_in_units_of_the_loss():
    # Of 400 prompts of 8 pairs a quarter has the largest loss on all other examples.
    losses = np.zeros((400, 8, 2))
    losses[:100, :, 1] = 1
    found = experiment.supersample(losses)
    # For a loss of two values the smallest bound is the error.
    np.testing.assert_allclose([found["value"], found["error"]], 0.5, rtol=1e-3)
    assert 0.5 < found["upper"] < 1
    spread = 2 * math.sqrt(0.25 * 0.75 / 399)
    np.testing.assert_allclose(found["error_se"], spread, rtol=1e-6)


def test_an_order_that_does_not_hold_is_seen():
    row, name = Row(2, 40, 20, 2), "frobenius >= exact"
    sample = made_up(Config(), row)
    for factor, sign in ((0.5, 1), (2, -1)):
        changed = sample | {"frobenius": factor * sample["exact"]}
        found = experiment.ordering(experiment.variants(row, changed, 2))
        assert sign * found[name] > 5


def test_too_few_demonstrations_make_every_bound_infinite(key):
    learner, keys = experiment.learner_of(DENSE, 0), jax.random.split(key, 3)
    one = jax.jit(lambda keys: experiment.replicate(keys, 3, learner, 6))(keys)
    sample = jax.tree.map(lambda x: np.asarray(x)[None].repeat(2, 0), one)
    found = experiment.variants(Row(2, 6, 3, 1, True), sample, 6)
    assert {value for value, _ in found.values()} == {math.inf}
    assert np.isfinite(one["error"])


# --- the reference and the plan


def test_the_reference_keeps_the_order_of_the_bounds():
    rows = [values for row, values in REFERENCE.items() if not row.generic]
    assert (len(rows), len(REFERENCE)) == (15, 15 + len(GENERIC))
    for values in rows:
        assert values["frobenius"] >= values["exact"] >= values["centred"]
        assert values["centred"] >= values["anisotropic"] > values["error"]


def test_z_scores_take_both_errors_and_the_rounding():
    row = Row(5, 10, 5, 2)
    names = [name for name in REFERENCE[row] if not name.endswith("_se")]
    equal = {n: {"value": REFERENCE[row][n], "se": 0.01, "spread": 1.0} for n in names}
    assert set(experiment.z_scores(row, equal).values()) == {0.0}

    def z(name, value, se, spread):
        entry = {"value": value, "se": se, "spread": spread}
        return experiment.z_scores(row, equal | {name: entry})[name]

    expected = (0.05 - 5e-6) / math.hypot(0.003, 0.0044)
    assert math.isclose(z("error", 0.19163 + 0.05, 0.003, 1.0), expected)
    expected = -(0.1 - 5e-4) / math.hypot(0.003, 2 / math.sqrt(4000))
    assert math.isclose(z("exact", 1.559 - 0.1, 0.003, 2.0), expected)
    assert z("held_out_half", 3.0, 0.1, 1.0) == math.inf


def test_a_crossing_is_where_the_power_law_says():
    N = [10, 100, 1000]
    values = [5 * n**-0.5 for n in N]
    assert math.isclose(experiment.crossing(N, values, 0.3), (5 / 0.3) ** 2)
    assert math.isnan(experiment.crossing(N, values, 0.01))
    assert math.isnan(experiment.crossing(N, [math.inf, *values[1:]], 1.0))


@pytest.mark.slow
def test_what_a_language_model_would_need():
    found = experiment.language_model(0.5)
    assert found["full"]["support"] == 8_390_656
    assert found["full"]["bound with 10 demonstrations"] == math.inf
    assert found["full"]["demonstrations, one layer"] > 4 * 8_390_656 * math.log(2)
    assert found["rank 20"]["support"] == 81_730


# --- the run


@pytest.mark.slow
def test_a_small_run_keeps_the_order_of_bounds_and_resumes_to_the_same(small_run):
    folder, result, pictures = small_run(experiment, TINY)
    assert pictures == {"scaling"}
    assert len(result["rows"]) == 5
    assert result["rows"]["GD d=5 N=12 b=4 L=2"]["printed"]["value"] == "Infinity"
    text = (folder / "result.json").read_text()
    lines = (folder / "metrics.jsonl").read_text().splitlines(keepends=True)
    assert len(lines) == 6
    (folder / "metrics.jsonl").write_text("".join(lines[:3]) + lines[3][:40])
    (folder / "result.json").unlink()
    experiment.main(["--resume", str(folder)])
    assert (folder / "result.json").read_text() == text
    assert (folder / "metrics.jsonl").read_text() == "".join(lines)
    for spread in result["invariance"]["relative_spread"].values():
        assert spread["full support"] < 1e-8
        # on a smaller support layers do differ
        assert min(spread["W_V of rank 1"], spread["gradient descent"]) > 1e-3
    failed = [check["name"] for check in result["checks"] if not check["passed"]]
    assert not [name for name in failed if "smallest valid" in name]


@pytest.mark.slow
def test_a_row_does_not_depend_on_the_others():
    row = Row(1, 6, 2, 1)
    small = {"generic": (), "pool_sizes": (), "targets": (), "replicates": 16}
    alone = experiment.simulate(Config(rows=(row[:4],), **small), row)
    among = experiment.simulate(Config(rows=((2, 9, 2, 1), row[:4]), **small), row)
    np.testing.assert_array_equal(alone["error"], among["error"])
    other = experiment.simulate(Config(rows=(row[:4],), seed=1, **small), row)
    assert not np.any(alone["error"] == other["error"])


# --- figures


def records(rows, **values):
    names = ("error", *experiment.DRAWN)
    return {
        row.label: {
            name: {"value": values.get(name, [1.0] * len(rows))[place], "se": 0.0}
            for name in names
        }
        for place, row in enumerate(rows)
    }


def test_curves_against_the_pool_with_guides():
    config = Config(pool_sizes=(10, 100), sweep_shots=99)
    rows = config.sweeps()["b = N/2"]
    given = records(rows, error=[0.1, 0.01], exact=[math.inf, 0.2])
    (axes,) = experiment.draw_scaling(config, given).axes
    lines = {line.get_label(): line for line in axes.get_lines()}
    np.testing.assert_array_equal(lines["true error"].get_ydata(), [0.1, 0.01])
    assert lines["plan (no bound)"].get_linestyle() == "--"
    # an infinite value leaves the axes
    assert lines[r"$\|G_t\|$"].get_ydata()[0] > axes.get_ylim()[1]
    guides = [line for line in axes.get_lines() if line.get_color() == "grey"]
    np.testing.assert_allclose(guides[1].get_ydata(), [0.07, 0.007])
