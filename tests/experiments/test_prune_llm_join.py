"""Ours beside the published rows, and several runs in one table and figure."""

import dataclasses
import json

import numpy as np
import pytest

from experiments._frame.run import Run
from experiments.prune_llm import join as joining
from experiments.prune_llm.bars import ModelBars, before_and_after
from experiments.prune_llm.beside import (
    NO_ROW,
    beside_published,
    beside_table,
)
from experiments.prune_llm.config import PAPER_RATES
from experiments.prune_llm.subject import TaskDraw
from experiments.prune_llm.tables import algorithm1_rows, as_numbers
from icltheory.bridge.answer_cache import AnswerCache
from icltheory.bridge.spectra import ConditionNumber
from icltheory.statistics import proportion_interval
from tests.experiments.test_prune_llm import made_up

MORE = (1.0, 1.0, (4096, 4096), "float16", 1e6, True, np.empty(0))


def like_the_scripts(denominator="n-1"):
    """A made-up study of GPT-J on RTE, in the settings of the scripts."""
    study = made_up(gain=0.3, num_layers=28)
    (old,) = study.answers.values()
    facts = old.facts._replace(
        name="rte", profile="authors_code", denominator=denominator
    )
    answers = AnswerCache(facts)
    answers.__dict__ |= {k: v for k, v in old.__dict__.items() if k != "facts"}
    config = dataclasses.replace(
        study.config,
        tasks=("rte",),
        profile="authors_code",
        shots=(-1,),
        dtype="float16",
    )
    conditions = tuple(
        ConditionNumber(layer, "attn", "W_Q", 10.0, *MORE) for layer in range(28)
    )
    return dataclasses.replace(
        study,
        config=config,
        family="gptj",
        conditions=conditions,
        answers={TaskDraw("rte", 5, 0, 0): answers},
    )


def test_ours_stands_beside_theirs_with_all_that_differs():
    study = like_the_scripts()
    rows = algorithm1_rows(study, study.judged_cases)
    found = beside_published(study, rows)
    assert [(b.published.table, b.published.module) for b in found] == [
        (6, "mlp"),
        (6, "attn"),
    ]
    result = rows[0].result
    assert (found[0].layer, found[0].rate) == (26, result.rate)
    # Both are divided by n - 1: ours here and theirs in Table 6.
    assert found[0].before == pytest.approx(result.test_before)
    assert found[0].before == pytest.approx(result.comparison.before * 400 / 399)
    assert found[0].differences == ("other rates", "400 for 277 test examples")
    same = dataclasses.replace(study.config, rates=PAPER_RATES)
    study = dataclasses.replace(study, config=same)
    found = beside_published(study, rows)
    assert found[0].differences == ("400 for 277 test examples",)
    table = beside_table(found, "some checkpoint")
    cells = [list(column.cells) for column in table.columns]
    assert cells[5][0].endswith("* / 0.56884*")
    assert cells[3][1] == "27 / 27"


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"profile": "paper"}, "the paper's prompts for the scripts'"),
        ({"dtype": "float32"}, "float32 for float16"),
        ({"race": True}, "a race for the full search"),
        ({"shots": (4,)}, "other demonstrations"),
    ],
)
def test_a_setting_that_differs_is_named(change, word):
    study = like_the_scripts()
    rows = algorithm1_rows(study, study.judged_cases)
    other = dataclasses.replace(study.config, **change)
    (first, _) = beside_published(dataclasses.replace(study, config=other), rows)
    assert word in first.differences


def test_other_models_and_tasks_have_no_published_row():
    study = made_up(gain=0.3)
    found = beside_published(study, algorithm1_rows(study, study.judged_cases))
    assert found == []
    assert beside_table(found, "any") == NO_ROW
    narrow = like_the_scripts()
    small = tuple(c._replace(shape=(256, 256)) for c in narrow.conditions)
    narrow = dataclasses.replace(narrow, conditions=small)
    rows = algorithm1_rows(narrow, narrow.judged_cases)
    assert "width 256 for 4096" in beside_published(narrow, rows)[0].differences


def finished(folder, checkpoint, gain, modules=("mlp", "attn"), **changes):
    """A run folder as a finished run leaves it."""
    study = made_up(gain)
    config = dataclasses.replace(
        study.config, checkpoint=checkpoint, modules=modules, **changes
    )
    rows = algorithm1_rows(study, study.judged_cases)
    rows = [as_numbers(r, 0.95) for r in rows if r.module in modules]
    beside = []
    if checkpoint == "hub/first":
        published = {"task": "toy", "module": "mlp", "before": "0.5", "after": "0.75"}
        published |= {"denominator": "n-1", "num_examples": 41}
        beside = [{"published": published}]
    run = Run(folder)
    folder.mkdir()
    run.write_json("config.json", {"config": dataclasses.asdict(config)})
    run.write_json("result.json", {"algorithm1": rows, "beside published": beside})
    return folder


def test_two_models_are_joined_into_four_bars(tmp_path):
    first = finished(tmp_path / "1", "hub/first", 0.3)
    second = finished(tmp_path / "2", "./other", 0.02)
    result = joining.join([first, second], tmp_path / "out")
    rows = result["algorithm1"]
    assert [(r["model"], r["module"]) for r in rows] == [
        ("first", "mlp"),
        ("first", "attn"),
        ("other", "mlp"),
        ("other", "attn"),
    ]
    # Holm over the two that were pruned, of both runs.
    assert [r["rate"] for r in rows] == [0.5, 0.0, 0.5, 0.0]
    low, high = sorted((rows[0]["p_value"], rows[2]["p_value"]))
    assert rows[0]["holm"] == pytest.approx(min(1, 2 * low))
    assert rows[2]["holm"] == pytest.approx(max(min(1, 2 * low), high))
    assert rows[0]["published"] == [0.5, 0.75]
    own = joining._rows(json.loads((first / "result.json").read_text()), "first")[0]
    # 20 and 30 right answers over 40, of 41 examples.
    assert joining._bars(own, 0.95).published == pytest.approx((20 / 41, 30 / 41))
    (folder,) = (tmp_path / "out" / "prune_llm").iterdir()
    assert (folder / "figure4_bars.png").is_file()
    stored = json.loads((folder / "config.json").read_text())["config"]
    assert stored["checkpoint"] == "hub/first, ./other"


def test_the_module_of_a_bar_is_that_of_the_best_validation_score(tmp_path):
    row = {"task": "toy", "rate": 0.5, "p_value": 1.0}
    rows = [
        joining.JoinedRow("m", {**row, "module": m, "validation_after": v}, None)
        for m, v in (("mlp", 0.7), ("attn", 0.8), ("all", 0.8))
    ]
    assert joining.preferred(rows).row["module"] == "attn"


def test_bars_are_what_was_measured():
    ends = proportion_interval(30, 50)
    bars = ModelBars((0.6, ends.low, ends.high), (0.8, 0.7, 0.9), (0.55, 0.85))
    figure = before_and_after({"toy": {"one": bars, "two": bars}}, ("one", "two"), "t")
    (axes,) = figure.axes
    heights = [patch.get_height() for patch in axes.patches]
    assert heights == [0.6, 0.8, 0.6, 0.8]
    marks = [line for line in axes.get_lines() if line.get_marker() == "D"]
    assert [line.get_ydata()[0] for line in marks] == [0.55, 0.85, 0.55, 0.85]
    names = [text.get_text() for text in figure.legends[0].get_texts()]
    assert names[:2] == ["one, unpruned", "one, Algorithm 1"]
    assert names[-1] == "published"


def test_runs_that_do_not_belong_together_are_not_joined(tmp_path):
    first = finished(tmp_path / "1", "hub/first", 0.3, modules=("mlp",))
    again = finished(tmp_path / "2", "hub/first", 0.3)
    with pytest.raises(ValueError, match="module once, got mlp of hub/first twice"):
        joining.join([first, again], tmp_path / "out")
    other = finished(tmp_path / "3", "hub/other", 0.3, rates=(0.0, 0.5))
    with pytest.raises(
        ValueError,
        match=r"differ only in checkpoint and modules, got rates .*/1 and .*/3",
    ):
        joining.join([first, other], tmp_path / "out")
    attention = finished(tmp_path / "4", "hub/first", 0.3, modules=("attn",))
    (attention / "result.json").unlink()
    with pytest.raises(ValueError, match=r"expected a finished run .*4 \(FileNotFound"):
        joining.join([first, attention], tmp_path / "out")
    with pytest.raises(
        ValueError, match="runs: expected folders of finished runs, got none"
    ):
        joining.main([])
