"""GPT-2 with and without its MLP: the cells, their scores, the run."""

import dataclasses
import json
import math
import sys
from types import SimpleNamespace

import jax
import numpy as np
import pytest

from experiments import ltb_gpt2
from experiments._frame.run import Run
from experiments._trained import Timing
from experiments.ltb_gpt2 import ModelSetting
from experiments.ltb_gpt2.config import PAPER_TABLE
from experiments.ltb_gpt2.drawing import Table1Setting, models_between_lines
from experiments.ltb_gpt2.join import join
from experiments.ltb_gpt2.measure import References, Score, references, rule_scores
from experiments.ltb_gpt2.possible import LOWEST, noise_limit
from experiments.ltb_gpt2.report import checks, claims
from icltheory.regression import Bayes, LinearPopulation, estimate_risk
from tests.experiments.test_ltb_gpt2_removal import made_up

pytestmark = pytest.mark.usefixtures("float32")
TINY = [
    *("--preset", "noiseless", "--recipe.width", "8", "--recipe.num-layers", "1"),
    *("--recipe.num-heads", "2", "--recipe.batch-size", "4", "--recipe.steps", "20"),
    *("--recipe.chunk-steps", "10", "--recipe.checkpoint-every", "20"),
    *("--recipe.snapshots", "0", "10", "20", "--recipe.optimizer.name", "adam"),
    *("--recipe.optimizer.warmup-steps", "2", "--recipe.seeds", "3", "5"),
    *("--recipe.dim", "2", "--recipe.num-points", "6", "--removal-prompts", "64"),
    *("--eval-prompts", "256", "--bayes-draws", "512", "--lsa-starts", "4"),
]
CPU = ltb_gpt2.PRESETS["cpu"]


# --- the cells


@pytest.mark.parametrize("preset", sorted(ltb_gpt2.PRESETS))
def test_the_cells_differ_in_mlp_and_mean_alone(preset):
    config = ltb_gpt2.PRESETS[preset]
    assert [tuple(cell) for cell in config.cells] == [
        (True, 0.0),
        (False, 0.0),
        (True, 10.0),
        (False, 10.0),
    ]
    for cell in config.cells:
        recipe = config.recipe_of(cell)
        same = dataclasses.replace(recipe, mlp=True, task_mean=0.0)
        assert same == config.recipe
        module, task = recipe.module(), recipe.task()
        assert (module.mlp, module.token_layout) == (cell.mlp, "matrix")
        np.testing.assert_array_equal(task.task_mean, np.full(recipe.dim, cell.mean))
        np.testing.assert_array_equal(task.task_cov, np.eye(recipe.dim))


def test_the_large_presets_are_the_papers_model():
    for preset in ("gpu", "paper"):
        recipe = ltb_gpt2.PRESETS[preset].recipe
        sizes = recipe.num_layers, recipe.num_heads, recipe.width, len(recipe.seeds)
        assert sizes == (6, 4, 128, 3)


@pytest.mark.slow
def test_prompts_are_drawn_from_the_prior_of_their_cell():
    task = CPU.recipe_of(ModelSetting(False, 10.0)).task()
    prompt = task.sample(jax.random.key(0), CPU.num_examples, 20_000)
    w = np.asarray(prompt.w, np.float64)
    np.testing.assert_allclose(w.mean(axis=0), 10, atol=5 / math.sqrt(20_000))
    noise = np.asarray(prompt.y - np.einsum("bnd,bd->bn", prompt.X, w))
    assert noise.var() == pytest.approx(0.01, rel=0.05)


# --- scores and references


def test_a_score_is_the_mean_with_both_standard_errors():
    errors = np.array([[1.0, 2.0, 3.0], [3.0, 4.0, 8.0]])
    score = Score.of(errors)
    assert score.mean == pytest.approx(3.5)
    assert score.per_seed == pytest.approx((2.0, 5.0))
    assert score.seed_error == pytest.approx(1.5)
    by_prompt = np.std([2.0, 3.0, 5.5], ddof=1) / math.sqrt(3)
    assert score.prompt_error == pytest.approx(by_prompt)
    # Student's 95 % quantile with one degree of freedom is tan(0.45 pi).
    half = math.hypot(math.tan(0.45 * math.pi) * 1.5, 1.645 * by_prompt)
    assert score.interval == pytest.approx((3.5 - half, 3.5 + half), rel=1e-3)
    alone = Score.of(errors[:1])
    assert math.isnan(alone.seed_error)
    assert alone.interval[0] < 2.0 < alone.interval[1]


def test_joined_runs_are_one_score_of_all_seeds():
    rng = np.random.default_rng(0)
    errors = [rng.exponential(size=(n, 50)) for n in (1, 2)]
    score = Score.joined([Score.of(part) for part in errors])
    means = np.concatenate([part.mean(axis=1) for part in errors])
    assert score.per_seed == pytest.approx(tuple(means))
    assert score.mean == pytest.approx(means.mean())
    assert score.seed_error == pytest.approx(means.std(ddof=1) / math.sqrt(3))
    # The runs drew prompts of their own: the variances of their sums add up.
    var = [part.sum(axis=0).var(ddof=1) / 50 for part in errors]
    assert score.prompt_error == pytest.approx(math.sqrt(sum(var)) / 3)
    assert len(score.per_seed_error) == 3


def finished(folder, seeds, value):
    """A run folder as a finished run leaves it."""
    config = dataclasses.replace(
        CPU, recipe=dataclasses.replace(CPU.recipe, seeds=seeds)
    )
    errors = value * np.random.default_rng(seeds).exponential(size=(len(seeds), 9))
    cells = {c.name: dataclasses.asdict(Score.of(errors)) for c in CPU.cells}
    run = Run(folder)
    folder.mkdir()
    run.write_json("config.json", {"config": dataclasses.asdict(config)})
    run.write_json("result.json", {"cells": cells})
    return folder


@pytest.mark.slow
def test_join_makes_one_table_of_several_runs(tmp_path):
    first = finished(tmp_path / "first", (0,), 1.0)
    second = finished(tmp_path / "second", (1, 4), 2.0)
    result = join([first, second], tmp_path / "out")
    (folder,) = (tmp_path / "out" / "ltb_gpt2").iterdir()
    assert {path.name for path in folder.iterdir() if path.suffix != ".svg"} == {
        "config.json",
        "result.json",
        "timing.json",
        "table1.png",
    }
    for name, cell in result["cells"].items():
        stored = [
            json.loads((run / "result.json").read_text())["cells"][name]["per_seed"]
            for run in (first, second)
        ]
        assert list(cell["per_seed"]) == sum(stored, [])
    # Seeds of the preset's own sizes are checked, and other sizes are not.
    assert result["verdict"] in ("passed", "failed")
    for run in (first, second):
        config = json.loads((run / "config.json").read_text())
        config["config"]["recipe"]["steps"] //= 2
        (run / "config.json").write_text(json.dumps(config))
    other = join([first, second], tmp_path / "other")
    assert other["verdict"] == "not applicable"


def test_runs_that_do_not_belong_together_are_not_joined(tmp_path):
    first = finished(tmp_path / "first", (0,), 1.0)
    second = finished(tmp_path / "second", (1, 4), 2.0)
    with pytest.raises(ValueError, match="runs: expected distinct seeds"):
        join([first, first], tmp_path / "out")
    (second / "result.json").unlink()
    with pytest.raises(ValueError, match=r"runs: expected a finished run .*second"):
        join([first, second], tmp_path / "out")
    config = json.loads((second / "config.json").read_text())
    config["config"]["mean"] = 5.0
    (second / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match=r"differ only in the seeds, got .*second"):
        join([first, second], tmp_path / "out")


@pytest.mark.slow
def test_references_are_the_formulas_of_the_paper():
    d, M, s2 = CPU.recipe.dim, CPU.num_examples, CPU.recipe.noise_var
    zero, far = (references(CPU, mean) for mean in CPU.means)
    tau = d + s2
    assert far.block == pytest.approx(s2 + d * (1 + tau) / (M + 1 + tau), rel=1e-5)
    assert zero.block == far.block
    assert zero.attention == pytest.approx(zero.block, rel=1e-4)
    assert zero.step_from_zero == pytest.approx(zero.block, rel=1e-4)
    assert far.attention_sure == pytest.approx(far.block + 100 * d / (M + 1), rel=1e-4)
    assert far.attention_sure <= far.attention_bound <= far.attention * (1 + 1e-4)
    assert far.attention <= far.step_from_zero * (1 + 1e-4)
    assert far.prior_mean == pytest.approx(tau)
    assert far.least_squares == pytest.approx(s2 * (M - 1) / (M - d - 1), rel=1e-5)
    assert s2 < far.bayes < far.least_squares
    assert far.bayes == zero.bayes


@pytest.mark.slow
def test_known_rules_score_their_known_risks():
    found = references(CPU, 10.0)
    scores = rule_scores(CPU, 10.0)
    for name, exact in (("Bayes", found.bayes), ("<beta*, x>", found.prior_mean)):
        score = scores[name]
        assert abs(score.mean - exact) < 5 * score.prompt_error


def scores_of(values):
    """Scores of the four cells; seeds lie 6 % around the values."""
    return {
        cell: Score.of(value * np.linspace(0.9, 1.1, 6).reshape(2, 3))
        for cell, value in zip(CPU.cells, values, strict=True)
    }


def columns_of(means):
    """References of about the size of the real ones, which take seconds to compile."""
    far = {"attention": 58.4, "attention_bound": 55.3, "attention_sure": 34.1}
    near = dict.fromkeys(far, 0.76)
    known = {"prior_mean": 2.01, "least_squares": 0.02, "bayes": 0.0198}
    return {
        mean: References(
            block=0.76,
            step_from_zero=58.5 if mean else 0.76,
            bayes_error=7e-5,
            **(far if mean else near),
            **known,
        )
        for mean in means
    }


@pytest.mark.slow
def test_the_checks_ask_whether_the_models_learned():
    columns = columns_of(CPU.means)

    def failed(values):
        found = checks(CPU, scores_of(values), columns)
        return {place for place, check in enumerate(found) if not check.passed}

    assert failed((0.03, 0.1, 0.03, 2.0)) == set()
    assert failed((2.0, 3.0, 0.03, 2.0)) == {0}
    assert failed((0.03, 0.1, 2.0, 20.0)) == {1}
    # nothing is below Bayes
    assert failed((1e-4, 1e-4, 0.03, 2.0)) == {4}


def test_the_claims_tell_the_published_pattern_from_its_absence():
    def held(values):
        return [claim.held for claim in claims(CPU, scores_of(values))]

    published = [PAPER_TABLE[cell] for cell in CPU.cells]
    assert held(published) == held((0.03, 0.1, 0.03, 2.0)) == [True, True, True]
    assert held((0.03, 0.1, 0.03, 0.15)) == [True, True, False]
    assert held((0.03, 0.3, 0.03, 0.2)) == [True, False, False]
    assert held((0.03, 0.03, 0.03, 0.0305)) == [False, True, False]


# --- the run


def test_the_command_line_writes_what_is_reported_of_its_models(tmp_path, monkeypatch):
    main, asked = sys.modules["experiments.ltb_gpt2.main"], []

    def train(recipe, run, *, name, earlier):
        asked.append((name, recipe))
        return SimpleNamespace(records=[name], timing=Timing(), mean=recipe.task_mean)

    def errors(trained, prompt):
        assert prompt == trained.mean
        return (1 + trained.mean) * np.linspace(0.9, 1.1, 6).reshape(2, 3)

    monkeypatch.setattr(main, "train", train)
    monkeypatch.setattr(main, "evaluation_prompt", lambda config, mean: mean)
    monkeypatch.setattr(main, "model_errors", errors)
    removed = made_up(CPU)
    monkeypatch.setattr(main, "removals", lambda config, trained, cell: removed[cell])
    columns = columns_of(CPU.means)
    monkeypatch.setattr(main, "references", lambda config, mean: columns[mean])
    seeds = ["--recipe.seeds", "3", "5"]
    result = ltb_gpt2.main(["--preset", "cpu", *seeds, "--output", str(tmp_path)])
    config = dataclasses.replace(
        CPU, recipe=dataclasses.replace(CPU.recipe, seeds=(3, 5))
    )
    assert asked == [(c.name, config.recipe_of(c)) for c in CPU.cells_as_trained]
    (folder,) = (tmp_path / "ltb_gpt2").iterdir()
    assert json.loads((folder / "result.json").read_text()) == result
    assert (folder / "table1.png").is_file()
    assert (folder / "removal.png").is_file()
    for cell in CPU.cells:
        mean = result["cells"][cell.name]["mean"]
        assert mean == pytest.approx(1 + cell.mean)
    # Models so far from their references pass no check.
    assert not result["passed"]


@pytest.mark.slow
def test_a_killed_run_ends_as_one_that_was_not(tmp_path, interrupted):
    result = ltb_gpt2.main([*TINY, "--output", str(tmp_path / "whole")])
    (folder,) = (tmp_path / "whole" / "ltb_gpt2").iterdir()
    names = {path.name for path in folder.iterdir() if path.suffix != ".svg"}
    written = {
        "config.json",
        "metrics.jsonl",
        "result.json",
        "report.html",
        "timing.json",
        "checkpoints",
    }
    assert names == written | {"table1.png", "removal.png", "course.png"}
    assert json.loads((folder / "result.json").read_text()) == result
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    records = [json.loads(line) for line in lines]
    ends = [(c.name, step) for c in CPU.cells_as_trained for step in (10, 20)]
    assert [(r["model"], r["step"]) for r in records] == ends
    assert set(result["cells"]) == {cell.name for cell in CPU.cells}
    for cell in result["cells"].values():
        assert len(cell["per_seed"]) == 2
        assert cell["interval"][0] < cell["mean"] < cell["interval"][1]
    course = result["course"]
    assert course["steps"] == [0, 10, 20]
    for name, cell in course["cells"].items():
        # The last snapshot is the model of the table, and training changes the errors.
        assert cell["mean"][-1] == result["cells"][name]["mean"]
        assert len({*cell["mean"]}) == 3
    # Twenty steps learn nothing, and the run says so.
    assert not result["passed"]

    with interrupted(3):
        ltb_gpt2.main([*TINY, "--output", str(tmp_path / "cut")])
    (cut,) = (tmp_path / "cut" / "ltb_gpt2").iterdir()
    assert not (cut / "result.json").exists()
    resumed = ltb_gpt2.main(["--resume", str(cut)])
    for part in ("cells", "references", "ratios", "checks", "removal", "course"):
        assert resumed[part] == result[part]
    texts = [(x / "metrics.jsonl").read_text() for x in (folder, cut)]
    assert texts[0] == texts[1]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (["--mean", "0"], "mean: expected a value other than 0, got 0"),
        (["--eval-prompts", "1"], "eval_prompts: expected at least 2, got 1"),
        (["--recipe.dim", "1"], "recipe.dim: expected at least 2, got 1"),
        (["--random-directions", "0"], "random_directions: expected at least 1"),
        (["--recipe.model", "linear"], "recipe: expected model gpt2, mlp True"),
        (["--recipe.seeds", "1", "1"], "recipe.seeds: expected distinct seeds"),
        (["--recipe.task-mean", "10"], "recipe: expected model gpt2, mlp True"),
        (["--recipe.loss-points", "all"], "recipe: expected the loss of the last"),
        (["--recipe.snapshots", "7"], "snapshots: expected multiples"),
        (["--recipe.optimizer.name", "lion"], "optimizer: expected one of"),
    ],
)
def test_mistakes_are_named_and_nothing_is_written(change, message, refused):
    refused(ltb_gpt2.main, change, message)


# --- the figure


@pytest.mark.slow
def test_the_figure_shows_seeds_means_lines_and_published_numbers():
    settings = {
        name: Table1Setting(
            dots={"a": (0.1, 0.2), "b": (1.0, 3.0)},
            intervals={"a": (0.15, 0.1, 0.2), "b": (2.0, -1.0, 5.0)},
            lines={"exact": 0.5, "zero": 0.0},
            published={"b": 9.0},
        )
        for name in ("near", "far")
    }
    (axes,) = models_between_lines(settings, "error", "a title").axes
    assert axes.get_yscale() == "log"
    assert [text.get_text() for text in axes.get_xticklabels()] == ["near", "far"]
    drawn = [tuple(line.get_ydata()) for line in axes.get_lines()]
    assert drawn.count((0.1, 0.2)) == drawn.count((1.0, 3.0)) == 2
    assert drawn.count((9.0,)) == 2
    (figure,) = {axes.figure}
    (legend,) = figure.legends
    labels = [text.get_text() for text in legend.get_texts()]
    assert sorted(label.split(",")[0] for label in labels) == ["a", "b", "b"]
    assert {text.get_text() for text in axes.texts} == {"exact"}


def test_the_largest_possible_noise_is_where_bayes_has_the_error():
    limit = noise_limit(2, 5)
    # The average Bayes risk, on other inputs and by the library.
    task = LinearPopulation.isotropic(2, limit.noise_var)
    risk, error = estimate_risk(Bayes(task), task, 5, key=jax.random.key(9))
    assert abs(float(risk) - LOWEST) < 5 * float(error) + 5 * limit.standard_error
    assert 0.001 < limit.noise_var < LOWEST / 2 * 1.1
    assert noise_limit(20, 5) == (0, 0)


def test_the_settings_of_the_presets_are_impossible_for_the_published_error():
    for name in ("cpu", "gpu"):
        recipe = ltb_gpt2.PRESETS[name].recipe
        assert (
            noise_limit(recipe.dim, recipe.num_points - 1).noise_var < recipe.noise_var
        )
