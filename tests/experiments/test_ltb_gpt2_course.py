"""Errors along training, and the presets without label noise."""

import math

import numpy as np
import pytest

from experiments import ltb_gpt2
from experiments.ltb_gpt2 import course
from experiments.ltb_gpt2.config import PAPER_TABLE, ModelSetting
from experiments.ltb_gpt2.measure import References, Score, rule_scores
from experiments.ltb_gpt2.possible import noise_limit
from experiments.ltb_gpt2.report import checks, report
from tests.experiments.test_ltb_gpt2 import TINY

pytestmark = pytest.mark.usefixtures("float32")
NOISELESS, D20 = (ltb_gpt2.PRESETS[n] for n in ("noiseless", "d20"))
WITHOUT = ModelSetting(False, 10.0)


def scores_of(values, seeds=2):
    """Scores by step; seeds and prompts lie within 10 % of the values."""
    spread = np.linspace(0.9, 1.1, 3 * seeds).reshape(seeds, 3)
    return {100 * (i + 1): Score.of(v * spread) for i, v in enumerate(values)}


def courses_of(far_without=(500.0, 9.0, 4.0), seeds=2):
    one = scores_of((500.0, 5.0, 4.0), seeds)
    found = dict.fromkeys(NOISELESS.cells, one)
    return {**found, WITHOUT: scores_of(far_without, seeds)}


def column(block=1.154, prior_mean=5.0):
    lsa = dict.fromkeys(("attention", "attention_bound", "attention_sure"), 49.5)
    known = {"step_from_zero": 49.6, "least_squares": 0.0, "bayes": 0.0}
    return References(
        block=block, prior_mean=prior_mean, bayes_error=0.0, **lsa, **known
    )


# --- the presets


@pytest.mark.parametrize(("config", "sizes"), [(NOISELESS, (5, 20)), (D20, (20, 40))])
def test_the_presets_without_noise_are_settings_that_the_published_errors_allow(
    config, sizes
):
    recipe = config.recipe
    assert (recipe.dim, config.num_examples) == sizes
    assert recipe.noise_var == 0 < noise_limit(*sizes).noise_var
    assert config.mean == 10
    # The schedule ends at zero, and the last snapshot is the model of the table.
    assert recipe.optimizer.schedule == "cosine"
    assert recipe.snapshots[-1] == recipe.steps
    assert config.recipe_of(WITHOUT).snapshots == recipe.snapshots


def test_the_other_presets_have_no_snapshots_and_the_same_report():
    for name in ("cpu", "gpu", "paper"):
        assert ltb_gpt2.PRESETS[name].recipe.snapshots == ()


# --- the contrast


def test_a_contrast_is_a_ratio_with_the_relative_errors_of_both():
    without, with_mlp = scores_of((9.0,))[100], scores_of((4.5,))[100]
    found = course.Contrast.of(without, with_mlp)
    assert found.ratio == pytest.approx(2)
    half = without.interval[1] / without.mean - 1
    assert found.high == pytest.approx(2 * math.exp(math.sqrt(2) * half))
    assert found.low * found.high == pytest.approx(4)


@pytest.mark.slow
def test_the_interval_of_a_contrast_covers_the_ratio():
    # Many seeds, errors of two models that share no prompts: coverage is nominal.
    rng, hits = np.random.default_rng(0), 0
    for _ in range(400):
        a, b = (
            rng.normal(m, 0.5, (30, 40)) + rng.normal(0, 0.2, (30, 1)) for m in (6, 3)
        )
        found = course.Contrast.of(Score.of(a), Score.of(b))
        hits += found.low < 2 < found.high
    # The prompts' error is counted in the seeds' spread too: rather too wide.
    assert hits / 400 > 0.9 - 3 * math.sqrt(0.9 * 0.1 / 400)


# --- the report


def test_findings_name_the_steps():
    said = course.findings(NOISELESS, courses_of())
    below = [line for line in said if "the published error without MLP" in line]
    assert len(below) == 2
    assert below[0].startswith("GPT-2, mean 10: below 8.871")
    assert "step 200" in below[0]
    assert below[1].startswith("GPT-2 without MLP, mean 10: below 8.871")
    assert "step 300" in below[1]
    [most] = [line for line in said if line.startswith("mean 10: ")]
    assert "at most 1.80 times" in most
    assert "at step 200" in most
    assert "GPT-2 without MLP, mean 10: 4 at step 300, 4 at step 300" in said
    never = course.findings(NOISELESS, courses_of((500.0, 20.0, 9.0)))
    assert any("without MLP, never" in line for line in never)


def test_numbers_and_table_have_every_snapshot():
    courses = courses_of()
    found = course.numbers(NOISELESS, courses)
    assert found["steps"] == [100, 200, 300]
    assert found["contrast"]["mean_10"]["ratio"] == pytest.approx([1, 1.8, 1])
    assert set(found["cells"]) == {cell.name for cell in NOISELESS.cells}
    assert np.shape(found["cells"]["no_mlp_mean_10"]["per_seed"]) == (3, 2)
    shown = course.table(NOISELESS, courses)
    assert (len(shown.columns), shown.row_count) == (7, 3)


@pytest.mark.slow
def test_a_run_with_snapshots_may_end_early_but_not_above_the_prior_mean():
    columns = dict.fromkeys(NOISELESS.means, column())

    def failed(far):
        scores = {cell: scores_of((far,))[100] for cell in NOISELESS.cells}
        return [c.name for c in checks(NOISELESS, scores, columns) if not c.passed]

    # Above one layer's 1.154 and below the prior mean's 5. Without noise Bayes' rule is
    # exact, and what rounding makes of it passes.
    assert failed(4.0) == []
    assert [name.split(" at ")[0] for name in failed(8.0)] == ["GPT-2", "GPT-2"]
    assert 0 < rule_scores(NOISELESS, 10.0)["Bayes"].mean < 1e-9


@pytest.mark.slow
def test_joined_runs_have_no_course():
    scores = {cell: scores_of((4.0,))[100] for cell in NOISELESS.cells}
    columns = dict.fromkeys(NOISELESS.means, column())
    found = report(NOISELESS, scores, columns)
    assert "course" not in found.numbers
    whole = report(NOISELESS, scores, columns, None, courses_of())
    assert whole.numbers.keys() - found.numbers.keys() == {"course"}
    assert whole.figures.keys() - found.figures.keys() == {"course.png"}
    # The tables of other presets keep their places.
    assert len(whole.tables) == len(found.tables) + 1


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [1, 2])
def test_the_figure_has_both_means_and_the_contrast(seeds):
    columns = dict.fromkeys(NOISELESS.means, column())
    found = course.figure(NOISELESS, courses_of(seeds=seeds), columns)
    near, far, ratio = [axes for axes in found.axes if axes.get_visible()]
    for axes in (near, far):
        assert axes.get_yscale() == axes.get_xscale() == "log"
        drawn = [tuple(line.get_ydata()) for line in axes.get_lines()]
        assert len([line for line in drawn if len(line) == 3]) == 2
    levels = {line.get_ydata()[0] for line in far.get_lines()[2:]}
    assert levels == {5.0, 1.154, PAPER_TABLE[WITHOUT]}
    assert len(ratio.get_lines()) == 3


def test_a_snapshot_within_a_chunk_is_refused(tmp_path):
    with pytest.raises(
        ValueError, match="snapshots: expected multiples of chunk_steps"
    ):
        ltb_gpt2.main([*TINY, "--recipe.snapshots", "7", "--output", str(tmp_path)])
    assert not list(tmp_path.iterdir())
