"""GPT-2 with and without its MLP: the cells, their scores, removals, the run."""

import dataclasses
import json
import math
from types import SimpleNamespace

import jax
import numpy as np
import pytest

from experiments import ltb_gpt2
from experiments.ltb_gpt2 import LOWEST, PUBLISHED, ROUTES, carrying, noise_limit, score
from icltheory.regression import Bayes, LinearPopulation, estimate_risk
from tests.weights import drawn

pytestmark = pytest.mark.usefixtures("float32")
TINY = """
    --preset noiseless --recipe.width 8 --recipe.num-layers 1 --recipe.num-heads 2
    --recipe.batch-size 4 --recipe.steps 20 --recipe.chunk-steps 10
    --recipe.checkpoint-every 20 --recipe.snapshots 0 10 20 --recipe.optimizer.name adam
    --recipe.optimizer.warmup-steps 2 --recipe.seeds 3 5 --recipe.dim 2
    --recipe.num-points 6 --removal-prompts 64 --eval-prompts 256 --bayes-draws 512
    --lsa-starts 4
"""
CPU, NOISELESS, D20 = (ltb_gpt2.PRESETS[n] for n in ("cpu", "noiseless", "d20"))
RISKS = {"block": 0.76, "prior_mean": 2.01, "least_squares": 0.02, "bayes": 0.0198}
RISKS |= {"bayes_error": 7e-5, "step_from_zero": 58.5}
RISKS |= dict.fromkeys(("attention", "attention_bound", "attention_sure"), 58.4)


def spread(value, seeds=2):
    """A score; seeds and prompts lie within 10 % of the value."""
    return score(value * np.linspace(0.9, 1.1, 3 * seeds).reshape(seeds, 3))


def rows_of(config, values, after=230.0, course=(), far_without=()):
    """Rows of the four cells as they are measured, of about real size."""
    keys = [
        f"{kind}_{route}_{depth}"
        for kind in ("prior", "input", "random")
        for route in ROUTES
        for depth in range(config.recipe.num_layers + 1)
    ]
    rows = config.cells
    for row, value in zip(rows, values, strict=True):
        row["score"] = spread(value)
        found = {key: spread(1.2 if "blocks" in key else after) for key in keys}
        explained = [[1.0]] * (config.recipe.num_layers + 1)
        row["removal"] = {"before": spread(0.4), "after": found, "explained": explained}
        if course:
            row["steps"] = [100, 200, 300]
            row["course"] = [spread(x) for x in course]
    if course:
        rows[3]["course"] = [spread(x) for x in far_without]
    return rows


def columns_of(config, values, risks=RISKS, **changes):
    """Columns of made-up rows."""
    risks = dict.fromkeys(config.means, risks)
    return ltb_gpt2.columns_of(config, rows_of(config, values, **changes), risks)


# --- the cells


@pytest.mark.parametrize("preset", sorted(ltb_gpt2.PRESETS))
def test_the_cells_differ_in_mlp_and_mean_alone(preset):
    config = ltb_gpt2.PRESETS[preset]
    pairs = [(True, 0.0), (False, 0.0), (True, 10.0), (False, 10.0)]
    for cell, (mlp, mean) in zip(config.cells, pairs, strict=True):
        recipe = cell["recipe"]
        assert dataclasses.replace(recipe, mlp=True, task_mean=0.0) == config.recipe
        module, task = recipe.module(), recipe.task()
        assert (module.mlp, module.token_layout) == (mlp, "matrix")
        np.testing.assert_array_equal(task.task_mean, np.full(recipe.dim, mean))
        np.testing.assert_array_equal(task.task_cov, np.eye(recipe.dim))
        np.testing.assert_array_equal(
            ltb_gpt2.task_of(config, mean).task_mean, task.task_mean
        )


def test_the_presets_allow_the_published_errors_or_not():
    for name in ("gpu", "paper"):
        recipe = ltb_gpt2.PRESETS[name].recipe
        sizes = recipe.num_layers, recipe.num_heads, recipe.width, len(recipe.seeds)
        assert sizes == (6, 4, 128, 3)
        assert recipe.snapshots == ()
    assert noise_limit(2, 5)[0] < CPU.recipe.noise_var
    for config, sizes in ((NOISELESS, (5, 20)), (D20, (20, 40))):
        recipe = config.recipe
        assert (recipe.dim, config.num_examples) == sizes
        assert recipe.noise_var == 0 < noise_limit(*sizes)[0]
        # The schedule ends at zero, and the last snapshot is the model of the table.
        assert recipe.optimizer.schedule == "cosine"
        assert recipe.snapshots[-1] == recipe.steps


def test_the_largest_possible_noise_is_where_bayes_has_the_error():
    limit, standard_error = noise_limit(2, 5)
    # The average Bayes risk, on other inputs and by the library.
    task = LinearPopulation.isotropic(2, limit)
    risk, error = estimate_risk(Bayes(task), task, 5, key=jax.random.key(9))
    assert abs(float(risk) - LOWEST) < 5 * float(error) + 5 * standard_error
    assert 0.001 < limit < LOWEST / 2 * 1.1
    assert noise_limit(20, 5) == (0, 0)


# --- scores and references


def test_a_score_is_the_mean_with_both_standard_errors():
    errors = np.array([[1.0, 2.0, 3.0], [3.0, 4.0, 8.0]])
    found = score(errors)
    assert found["mean"] == pytest.approx(3.5)
    assert found["per_seed"] == pytest.approx([2.0, 5.0])
    assert found["seed_error"] == pytest.approx(1.5)
    by_prompt = np.std([2.0, 3.0, 5.5], ddof=1) / math.sqrt(3)
    assert found["prompt_error"] == pytest.approx(by_prompt)
    # Student's 95 % quantile with one degree of freedom is tan(0.475 pi).
    half = math.hypot(math.tan(0.475 * math.pi) * 1.5, 1.96 * by_prompt)
    assert found["interval"] == pytest.approx((3.5 - half, 3.5 + half), rel=1e-3)
    alone = score(errors[:1])
    assert math.isnan(alone["seed_error"])
    assert alone["interval"][0] < 2.0 < alone["interval"][1]


@pytest.mark.slow
def test_references_are_the_formulas_of_the_paper():
    d, M, s2 = CPU.recipe.dim, CPU.num_examples, CPU.recipe.noise_var
    zero, far = (ltb_gpt2.references(CPU, mean) for mean in CPU.means)
    tau = d + s2
    assert far["block"] == pytest.approx(s2 + d * (1 + tau) / (M + 1 + tau), rel=1e-5)
    assert zero["block"] == far["block"]
    assert zero["attention"] == pytest.approx(zero["block"], rel=1e-4)
    sure = far["block"] + 100 * d / (M + 1)
    assert far["attention_sure"] == pytest.approx(sure, rel=1e-4)
    names = ("attention_sure", "attention_bound", "attention", "step_from_zero")
    risks = [far[name] for name in names]
    assert all(a <= b * (1 + 1e-4) for a, b in zip(risks, risks[1:], strict=False))
    assert far["prior_mean"] == pytest.approx(tau)
    exact = s2 * (M - 1) / (M - d - 1)
    assert far["least_squares"] == pytest.approx(exact, rel=1e-5)
    assert s2 < far["bayes"] < far["least_squares"]
    scores = ltb_gpt2.rule_scores(CPU, 10.0)
    for name, risk in (("Bayes", far["bayes"]), ("<beta*, x>", far["prior_mean"])):
        assert abs(scores[name]["mean"] - risk) < 5 * scores[name]["prompt_error"]


def test_a_contrast_is_a_ratio_with_the_relative_errors_of_both():
    with_mlp, without = spread(4.5), spread(9.0)
    ratio, low, high = ltb_gpt2.contrast(with_mlp, without)
    assert ratio == pytest.approx(2)
    half = without["interval"][1] / without["mean"] - 1
    assert high == pytest.approx(2 * math.exp(math.sqrt(2) * half))
    assert low * high == pytest.approx(4)


# --- removals


@pytest.mark.parametrize(("noise", "rank"), [(0.0, 7), (0.0, 2), (5.0, 7)])
def test_after_the_removal_no_linear_function_predicts_the_scalar(noise, rank):
    rng = np.random.default_rng(0)
    sources = rng.standard_normal((500, rank))
    states = (3 + sources @ rng.standard_normal((rank, 7))).astype(np.float32)
    scalar = 10 * sources[:, 0] + noise * rng.standard_normal(500)
    part, explained = carrying(states, scalar)
    left = states - part(states)
    correlation = (scalar - scalar.mean()) @ (left - left.mean(axis=0)) / len(scalar)
    assert np.abs(correlation).max() < 1e-5 * scalar.std()
    np.testing.assert_allclose(left.mean(axis=0), states.mean(axis=0), atol=1e-5)
    assert np.linalg.matrix_rank(part(states)) == 1
    # The share of the variance is that of ordinary least squares.
    design = np.column_stack([np.ones(len(states)), states.astype(float)])
    found = design @ np.linalg.lstsq(design, scalar, rcond=1e-5)[0]
    expected = 1 - (scalar - found).var() / scalar.var()
    assert explained == pytest.approx(expected, abs=1e-6)
    random = ltb_gpt2.random_component(rng, states)
    assert np.linalg.matrix_rank(random(states)) == 1
    assert np.abs(random(states - random(states))).max() < 1e-5


def test_floors_are_the_risks_of_bayes_without_one_coordinate():
    d, M, noise, mean = 2, CPU.num_examples, CPU.recipe.noise_var, 10.0
    rng, size = np.random.default_rng(0), 40_000
    X, x = rng.standard_normal((size, M, d)), rng.standard_normal((size, d))
    w = mean + rng.standard_normal((size, d))
    y = np.einsum("bmd,bd->bm", X, w) + noise**0.5 * rng.standard_normal((size, M))
    asked = np.einsum("bd,bd->b", x, w) + noise**0.5 * rng.standard_normal(size)
    A = np.einsum("bmd,bme->bde", X, X) + noise * np.eye(d)
    moment = np.einsum("bmd,bm->bd", X, y - mean * X.sum(axis=2))
    guess = np.linalg.solve(A, moment[..., None])[..., 0]
    u = np.full(d, 1 / math.sqrt(d))
    known = np.einsum("bd,bd->b", x - np.outer(x @ u, u), mean + guess)
    bayes = noise + noise * np.trace(np.linalg.inv(A), axis1=1, axis2=2).mean()
    found = ltb_gpt2.floors(CPU, mean, bayes)
    added = known + mean * math.sqrt(d) * (x @ u)
    for name, answer in (("unseen", known), ("passed", added)):
        errors = (answer - asked) ** 2
        assert abs(errors.mean() - found[name]) < 4 * errors.std() / math.sqrt(size)


@pytest.mark.slow
@pytest.mark.parametrize("writes", [False, True])
def test_routes_differ_where_blocks_write_into_the_stream(writes):
    sizes = {"width": 8, "num_layers": 2, "num_heads": 2, "seeds": (0, 1)}
    recipe = dataclasses.replace(CPU.recipe, **sizes)
    config = dataclasses.replace(
        CPU, recipe=recipe, removal_prompts=256, random_directions=2
    )
    prompt = recipe.task().sample(jax.random.key(0), recipe.num_points, 2)
    params = drawn(recipe.module().init, prompt.X, prompt.y)["params"]

    def silent(path, leaf):
        names = {str(getattr(key, "key", "")) for key in path}
        return leaf * 0 if names & {"attn_out", "mlp_out"} and not writes else leaf

    params = jax.tree.map_with_path(silent, params)
    trained = SimpleNamespace(module=recipe.module(), of_seed=lambda index: params)
    with jax.default_matmul_precision("highest"):
        found = ltb_gpt2.removals(config, trained, 10.0)
    before, after = found["before"]["mean"], found["after"]
    last = {f"{kind}_everywhere_2" for kind in ("prior", "input", "random")}
    kinds = {"prior", "input"}
    routes = {f"{k}_{route}_{d}" for k in kinds for route in ROUTES for d in (0, 1)}
    assert set(after) == last | routes | {f"random_everywhere_{d}" for d in (0, 1)}
    for depth in range(2):
        means = [after[f"prior_{route}_{depth}"]["mean"] for route in ROUTES]
        if writes:
            assert len({*means, before}) == 4
        else:
            # The stream is the same at every depth, and x is in it.
            everywhere, blocks, read_out = means
            assert blocks == pytest.approx(before)
            assert read_out == pytest.approx(everywhere) != before
    if not writes:
        np.testing.assert_allclose(found["explained"], 1, atol=1e-5)
    assert np.shape(found["explained"]) == (3, 2)
    # No model of any weights is better without the scalar than the least risk.
    least = ltb_gpt2.floors(config, 10.0, RISKS["bayes"])["unseen"]
    score = after["prior_everywhere_0"]
    assert score["mean"] > least - 5 * score["prompt_error"]


# --- the report


@pytest.mark.slow
def test_the_checks_ask_whether_the_models_learned():
    def failed(values, **changes):
        found = ltb_gpt2.checks(CPU, columns_of(CPU, values, **changes))
        return {place for place, check in enumerate(found) if not check.passed}

    near = {"after": 230.0}
    # The made-up removals are those of the far mean: at mean zero all are above.
    assert failed((0.03, 0.1, 0.03, 2.0), **near) == set()
    assert failed((2.0, 3.0, 0.03, 2.0), **near) == {0}
    assert failed((0.03, 0.1, 2.0, 20.0), **near) == {1}
    # Nothing is below Bayes, nor below the least risk without the scalar.
    assert failed((1e-4, 1e-4, 0.03, 2.0), **near) == {4}
    assert len(failed((0.03, 0.1, 0.03, 2.0), after=100.0)) == 2
    # A course may end early but not above the prior mean; without noise Bayes' rule is
    # exact, and what rounding makes of it passes.
    risks = RISKS | {"block": 1.154, "prior_mean": 5.0, "bayes": 0.0, "bayes_error": 0}
    for far, wrong in ((4.0, 0), (8.0, 2)):
        columns = columns_of(NOISELESS, (far,) * 4, risks, after=600.0)
        found = [c for c in ltb_gpt2.checks(NOISELESS, columns) if not c.passed]
        assert len(found) == wrong
    assert 0 < ltb_gpt2.rule_scores(NOISELESS, 10.0)["Bayes"]["mean"] < 1e-9


def test_the_claims_tell_the_published_pattern_from_its_absence():
    def held(values):
        return [claim.held for claim in ltb_gpt2.claims(columns_of(CPU, values))]

    published = list(PUBLISHED.values())
    assert held(published) == held((0.03, 0.1, 0.03, 2.0)) == [True, True, True]
    assert held((0.03, 0.1, 0.03, 0.15)) == [True, True, False]
    assert held((0.03, 0.3, 0.03, 0.2)) == [True, False, False]
    assert held((0.03, 0.03, 0.03, 0.0305)) == [False, True, False]


def test_numbers_findings_tables_and_figures_show_what_is_given():
    course = {"course": (500.0, 5.0, 4.0), "far_without": (500.0, 9.0, 4.0)}
    columns = columns_of(NOISELESS, (0.03, 0.1, 0.03, 2.0), **course)
    numbers = ltb_gpt2.numbers(columns)
    assert numbers["course"]["steps"] == [100, 200, 300]
    ratios = numbers["course"]["contrast"]["mean_10"]["ratio"]
    assert ratios == pytest.approx([1, 1.8, 1])
    assert np.shape(numbers["course"]["cells"]["no_mlp_mean_10"]["per_seed"]) == (3, 2)
    after = numbers["removal"]["cells"]["mlp_mean_10"]["after"]
    assert after["prior_read_out_0"]["mean"] == pytest.approx(230)
    said = ltb_gpt2.findings(columns)
    assert "0.4 before, 230 if the read-out" in said[3]
    assert "1.2 if the blocks" in said[3]
    assert said[5].startswith("GPT-2, mean 10: below 8.871")
    assert "step 200" in said[5]
    assert "step 300" in said[6]
    shown = ltb_gpt2.tables(NOISELESS, columns)
    sizes = [(len(one.columns), one.row_count) for one in shown]
    assert sizes == [(3, 12), (4, 6), (5, 11), (7, 3)]


@pytest.mark.slow
def test_the_figures_show_seeds_means_lines_and_published_numbers():
    course = {"course": (500.0, 5.0, 4.0), "far_without": (500.0, 9.0, 4.0)}
    columns = columns_of(NOISELESS, (0.03, 0.1, 0.04, 2.0), **course)
    figure = ltb_gpt2.draw_table(NOISELESS, columns)
    (axes,), (legend,) = figure.axes, figure.legends
    assert axes.get_yscale() == "log"
    drawn = [tuple(line.get_ydata()) for line in axes.get_lines()]
    for column in columns:
        for cell in column["cells"]:
            assert tuple(cell["score"]["per_seed"]) in drawn
            assert (cell["published"],) in drawn
    names = [text.get_text().split(",")[0] for text in legend.get_texts()]
    assert sorted(names) == ["GPT-2"] * 2 + ["GPT-2 without MLP"] * 2
    assert len(axes.texts) == 4
    figure = ltb_gpt2.draw_removals(NOISELESS, columns)
    assert [axes.get_title() for axes in figure.axes] == ["GPT-2", "GPT-2 without MLP"]
    for axes in figure.axes:
        assert axes.get_yscale() == "log"
        assert len(axes.containers) == 5
    figure = ltb_gpt2.draw_course(NOISELESS, columns)
    near, far, ratio = [axes for axes in figure.axes if axes.get_visible()]
    for axes in (near, far):
        assert axes.get_yscale() == axes.get_xscale() == "log"
        drawn = [tuple(line.get_ydata()) for line in axes.get_lines()]
        assert len([line for line in drawn if len(line) == 3]) == 2
    levels = {line.get_ydata()[0] for line in far.get_lines()[2:]}
    assert levels == {2.01, 0.76, PUBLISHED[False, 10.0]}
    assert len(ratio.get_lines()) == 3


# --- the run


@pytest.mark.slow
def test_a_killed_run_ends_as_one_that_was_not(small_run, tmp_path, interrupted):
    folder, result, pictures = small_run(ltb_gpt2, TINY)
    assert pictures == {"table1", "removal", "course"}
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    records = [json.loads(line) for line in lines]
    names = [cell["name"] for cell in CPU.cells]
    ends = [(name, step) for name in names[2:] + names[:2] for step in (10, 20)]
    assert [(r["model"], r["step"]) for r in records] == ends
    assert list(result["cells"]) == names
    for name, cell in result["cells"].items():
        assert len(cell["per_seed"]) == 2
        assert cell["interval"][0] < cell["mean"] < cell["interval"][1]
        # The last snapshot is the model of the table, and training changes the errors.
        course = result["course"]["cells"][name]["mean"]
        assert course[-1] == cell["mean"]
        assert len({*course}) == 3
    assert result["course"]["steps"] == [0, 10, 20]
    # Twenty steps learn nothing, and the run says so.
    assert not result["passed"]

    with interrupted(3):
        ltb_gpt2.main([*TINY.split(), "--output", str(tmp_path)])
    (cut,) = (tmp_path / "ltb_gpt2").iterdir()
    assert not (cut / "result.json").exists()
    resumed = ltb_gpt2.main(["--resume", str(cut)])
    for part in ("cells", "references", "ratios", "checks", "removal", "course"):
        assert resumed[part] == result[part]
    texts = [(x / "metrics.jsonl").read_text() for x in (folder, cut)]
    assert texts[0] == texts[1]
