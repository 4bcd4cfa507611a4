"""Arms of Algorithm 1: what they choose, what they are worth, and a run of all."""

import dataclasses
import json

import jax
import numpy as np
import pytest

from experiments import prune_llm
from experiments.prune_llm import arms, budgets
from experiments.prune_llm.figures import _arms as drawn
from experiments.prune_llm.methods import ARMS
from experiments.prune_llm.study import ANSWERS, METHODS
from experiments.prune_llm.subject import TaskDraw
from experiments.small_lm.tasks import declaration
from icltheory.bridge import load_checkpoint
from icltheory.bridge.answer_cache import AnswerCache
from icltheory.bridge.evaluation import GridChunk, evaluate_naive
from icltheory.bridge.export import size_report
from icltheory.bridge.tasks import load_task
from icltheory.pruning import prune_module
from icltheory.statistics import adjust_holm, compare
from tests.experiments.test_prune_llm import arguments, made_up, toy

__all__ = ["toy"]


def with_arms(gain, white_gain=0.0):
    """The made-up study, and answers with equal singular values that gain at 0.9."""
    study = made_up(gain)
    config = dataclasses.replace(study.config, arms=("random", "whitened"))
    ((case, usual),) = study.answers.items()
    white, rng = AnswerCache(usual.facts), np.random.default_rng(3)
    for split in ("validation", "test"):
        labels = usual.labels(split)
        for module in config.modules:
            plain = usual.correct(split, 2, module, (0.0,))[0]
            right = np.stack([plain, plain, plain | (rng.random(400) < white_gain)])
            scores = np.eye(2)[np.where(right, labels, 1 - labels)]
            chunk = GridChunk(2, module, np.arange(400), scores)
            white.add(split, config.rates, [chunk], labels)
    return dataclasses.replace(study, config=config, others={"whitened": {case: white}})


def test_arms_share_budget_and_test_set_and_are_compared_in_pairs():
    study = with_arms(gain=0.3, white_gain=0.5)
    rows = arms.arm_rows(study, study.judged_cases)
    assert [(r.module, r.arm) for r in rows] == [
        (module, arm)
        for module in ("mlp", "attn")
        for arm in ("condition", "random", "whitened")
    ]
    assert {row.result.evaluations for row in rows} == {3 * 400}
    condition, random, white = rows[:3]
    assert (condition.result.layer, condition.result.rate) == (2, 0.5)
    assert (white.result.layer, white.result.rate) == (2, 0.9)
    (case,) = study.judged_cases
    right = [
        study.answers[case].correct("test", 2, "mlp", (0.5,))[0],
        study.others["whitened"][case].correct("test", 2, "mlp", (0.9,))[0],
    ]
    assert white.against == compare(*right)
    assert condition.against is None
    assert random.result.layer == arms.random_layer(study, case, "mlp")


def test_holm_is_over_all_arms_that_prune():
    study = with_arms(gain=0.3, white_gain=0.5)
    rows = arms.arm_rows(study, study.judged_cases)
    pruned = [row for row in rows if row.result.rate > 0]
    wanted = adjust_holm([row.result.p_value for row in pruned])
    assert [row.holm for row in pruned] == pytest.approx(list(wanted))
    others = [row for row in rows if row.against is not None]
    wanted = adjust_holm([row.against.p_value for row in others])
    assert [row.against_holm for row in others] == pytest.approx(list(wanted))
    assert all(row.holm == 1 for row in rows if row.result.rate == 0)


def test_random_layers_are_of_all_layers_and_fixed_by_the_seed():
    study = dataclasses.replace(with_arms(0.3), num_layers=4)
    cases = [TaskDraw("toy", 4, seed, order) for seed in range(60) for order in (0, 1)]
    drawn_layers = [arms.random_layer(study, case, "mlp") for case in cases]
    counts = np.bincount(drawn_layers, minlength=4)
    # 30 of 120 each: four standard errors are 19.
    assert (np.abs(counts - 30) < 19).all()
    again = [arms.random_layer(study, case, "mlp") for case in cases]
    assert again == drawn_layers
    config = dataclasses.replace(study.config, seed=1)
    other = dataclasses.replace(study, config=config)
    assert [arms.random_layer(other, case, "mlp") for case in cases] != drawn_layers


def test_means_and_sentences_say_what_the_rows_do():
    study = with_arms(gain=0.3, white_gain=0.5)
    rows = arms.arm_rows(study, study.judged_cases)
    means = {m["arm"]: m for m in arms.arm_means(study, rows)}
    gains = [r.result.comparison.difference for r in rows if r.arm == "whitened"]
    assert means["whitened"]["test gain"] == pytest.approx(np.mean(gains))
    error = np.std(gains, ddof=1) / np.sqrt(2)
    assert means["whitened"]["test gain standard error"] == pytest.approx(error)
    assert means["random"]["evaluations"] == 2 * 3 * 400
    said = arms.arm_findings(study, rows, list(means.values()))
    assert "Arm equal singular values" in said[1]
    sure = [r for r in rows if r.arm == "whitened" and r.against_holm <= 0.05]
    better = sum(r.against.difference > 0 for r in sure)
    assert better >= 1
    assert f"{better} are better than plain SVD" in said[1]
    titles = [axes.get_title() for axes in drawn(rows, 0.95).axes]
    assert titles[:3] == [arms.NAMES[arm] for arm in means]


def test_at_every_budget_methods_are_compared_with_as_many_parameters():
    study = with_arms(gain=0.3, white_gain=0.5)
    rows = budgets.budget_rows(study, study.judged_cases)
    assert [(r.module, r.rate, r.arm) for r in rows] == [
        (module, rate, arm)
        for module in ("mlp", "attn")
        for rate in (0.5, 0.9)
        for arm in ("condition", "whitened")
    ]
    # Of 16 x 16 rank 8 is stored whole, and rank 1 takes 32 numbers.
    assert {(r.rate, r.kept) for r in rows} == {(0.5, 1.0), (0.9, 0.125)}
    (case,) = study.judged_cases
    at = ("validation", 2, "mlp", (0.0, 0.9))
    before, plain = study.answers[case].correct(*at)
    white = study.others["whitened"][case].correct(*at)[1]
    assert rows[3].against == compare(plain, white)
    assert rows[3].change == compare(before, white)
    others = [row for row in rows if row.against is not None]
    wanted = adjust_holm([row.against.p_value for row in others])
    assert [row.against_holm for row in others] == pytest.approx(list(wanted))
    means = {(m["module"], m["rate"], m["arm"]): m for m in budgets.budget_means(rows)}
    assert means["mlp", 0.9, "whitened"]["change"] == rows[3].change.difference
    (said,) = budgets.budget_findings(study, rows)
    sure = [r.against.difference for r in others if r.against_holm <= 0.05]
    better = sum(d > 0 for d in sure)
    assert better >= 1
    assert f"{better} are better and {len(sure) - better} worse" in said
    assert "over all 4" in said


def test_after_a_race_without_all_answers_no_budgets_are_compared():
    study = with_arms(gain=0.3)
    (case,) = study.judged_cases
    few = AnswerCache(study.answers[case].facts)
    other = dataclasses.replace(study, others={"whitened": {case: few}})
    assert budgets.budget_rows(other, study.judged_cases) == []


@pytest.mark.slow
def test_a_run_with_arms_prunes_as_they_say_and_resumes(toy, tmp_path):
    more = ("--arms", *list(ARMS)[1:], "--demonstration-seeds", "0")
    more += ("--shots", "2", "--rates", "0", "0.5")
    with jax.enable_x64(False):
        prune_llm.main(arguments(toy, tmp_path, *more))
        (folder,) = (tmp_path / "prune_llm").iterdir()
        result = json.loads((folder / "result.json").read_text())
        again = prune_llm.main(["--resume", str(folder)])
        assert again["answered now"] == 0
        assert again["arms"] == result["arms"]
        assert again["budgets"] == result["budgets"]
        assert {row["arm"] for row in result["arms"]["rows"]} == set(ARMS)
        kept = {row["kept"] for row in result["budgets"]["rows"]}
        assert (folder / "figure_arms.png").is_file()
        lines = [
            json.loads(line)
            for name in (ANSWERS, METHODS)
            for line in (folder / name).read_text().splitlines()[1:]
        ]
        assert len(lines) == result["answers"]
        methods = {line.get("method", "svd") for line in lines}
        assert methods == {
            "svd",
            "whitened",
            "activation-d0.001-demonstrations",
            "magnitude-equal-parameters",
            "random-vectors-s0",
        }
        white = [line for line in lines if line.get("method") == "whitened"]
        (layer,) = {line["layer"] for line in white}
        model = load_checkpoint(toy / "checkpoint")
        params = prune_module(model, model.params, layer, "mlp", 0.5, method="whitened")
        sizes = size_report(model, layer, "mlp", 0.5)
        assert kept == {sizes.stored / sizes.dense}
        task = load_task(declaration("sentiment"), toy / "tasks" / "sentiment")
        places = np.linspace(0, len(task.validation) - 1, 12).round().astype(int)
        few = tuple(task.validation[place] for place in places)
        plain = evaluate_naive(
            model.replace(params=params),
            dataclasses.replace(task, validation=few),
            shots=2,
        )
    own = {
        line["example"]: line["scores"]
        for line in white
        if line["rate"] == 0.5 and line["split"] == "validation"
    }
    found = np.array([own[number] for number in range(12)])
    np.testing.assert_allclose(found, plain.scores, atol=1e-4)
