"""Tables 2 to 8 as data, against the text of the paper, and beside our rows."""

import re
from pathlib import Path

import pytest

from experiments.real_model.config import PAPER_RATES, TASKS
from experiments.real_model.published import (
    CONFIGS,
    MODELS,
    STORED,
    beside,
    denominator,
    model_name,
)
from icltheory.bridge.families import read_architecture

PAPER = Path(__file__).parents[2].parent / "shared/papers/yao2024_svd_pruning.md"
# Cells of the text, where they do not stand in one line.
KINDS = {
    "model": r"GPT-J-6B|LLAMA2-7B",
    "module": r"MLP|ATTN",
    "layer": r"\d\d",
    "rate": r"0(?:\.\d{1,3})?",
    "scores": r"0\.\d+ - 0\.\d+",
}


def cells_of(line):
    """The cells of a line, without marks of fonts, formulas and arrows."""
    bare = re.sub(r"</?\w+>|\$|\\uparrow|\\downarrow|\([^)]*\)", "", line)
    return [cell.strip() for cell in bare.split("\t") if cell.strip()]


def printed_rows(text):
    """Rows in the order of the tables; those that the text tore apart are sewn."""
    rows, loose = [], {kind: [] for kind in KINDS}
    for line in text.splitlines():
        cells = cells_of(line)
        if len(cells) == 5 and re.fullmatch(KINDS["model"], cells[0]):
            model, layer, module, rate, scores = cells
            rows.append((model, layer, module, rate, scores))
        elif len(cells) == 1:
            for kind, pattern in KINDS.items():
                if re.fullmatch(pattern, cells[0]):
                    loose[kind].append(cells[0])
    order = ("model", "layer", "module", "rate", "scores")
    sewn = list(zip(*(loose[kind] for kind in order), strict=True))
    return rows[:2] + sewn + rows[2:]


def test_every_number_is_that_of_the_paper():
    if not PAPER.is_file():
        pytest.skip("the papers are not beside the repository")
    _, _, text = PAPER.read_text().partition("C.5 The Detailed Results of Algorithm 1")
    found = printed_rows(text)
    assert len(found) == 28
    for number, (row, mine) in enumerate(zip(found, STORED["rows"], strict=True)):
        model, layer, module, rate, scores = row
        assert mine == {
            "table": 2 + number // 4,
            "task": TASKS[number // 4],
            "model": model,
            "layer": int(layer),
            "module": module.lower(),
            "rate": rate,
            "before": scores.split(" - ")[0],
            "after": scores.split(" - ")[1],
        }


@pytest.mark.statement("Yao: Tables 2 to 8")
def test_the_rows_are_possible():
    """They could be copied wrongly where the text of the paper is not at hand."""
    rows = STORED["rows"]
    places = {(row["task"], row["model"], row["module"]) for row in rows}
    assert len(places) == len(rows) == len(TASKS) * 2 * 2
    assert {(row["model"], row["module"], row["layer"]) for row in rows} == {
        ("GPT-J-6B", "mlp", 26),
        ("GPT-J-6B", "attn", 27),
        ("LLAMA2-7B", "mlp", 30),
        ("LLAMA2-7B", "attn", 30),
    }
    assert len({(row["task"], row["model"], row["before"]) for row in rows}) == 14
    for row in rows:
        assert float(row["rate"]) in PAPER_RATES
        assert row["rate"] != "0" or row["before"] == row["after"]


def test_rte_and_cb_were_divided_by_n_minus_1():
    fits = {task: denominator(task) for task in TASKS}
    less, all_of_them = dict.fromkeys(("rte", "cb"), "n-1"), ("agnews", "emoc", "mrpc")
    few_digits = dict.fromkeys(("sst2", "copa"), "both")
    assert fits == {**dict.fromkeys(all_of_them, "n"), **less, **few_digits}


@pytest.mark.parametrize(
    ("preset", "name"), [*zip(CONFIGS, MODELS.values(), strict=True)]
)
def test_a_model_of_the_paper_is_known_by_its_sizes(preset, name):
    assert model_name(read_architecture(CONFIGS[preset])) == name
    fewer = {"n_layer": 27, "num_hidden_layers": 31}
    assert model_name(read_architecture({**CONFIGS[preset], **fewer})) is None


@pytest.mark.statement("Yao: Tables 2 to 8")
def test_ours_stand_beside_theirs_where_model_task_and_module_are_the_same():
    own = {"draw": 0, "layer": 25, "chosen": 0.5, "before": 0.5, "after": 0.625}
    tested = [
        {"task": task, "module": module, "arm": arm, **own}
        for task in ("sst2", "other")
        for module in ("mlp", "W_Q")
        for arm in ("algorithm1", "scale")
    ]
    (row,) = beside("GPT-J-6B", tested)
    (theirs,) = (
        row
        for row in STORED["rows"]
        if (row["model"], row["task"], row["module"]) == ("GPT-J-6B", "sst2", "mlp")
    )
    assert row == {
        "task": "sst2",
        "draw": 0,
        "module": "mlp",
        "layer": 25,
        "rate": "0.5",
        "ours": "0.500 -> 0.625",
        "their layer": 26,
        "their rate": theirs["rate"],
        "theirs": f"{theirs['before']} -> {theirs['after']}",
    }
    assert beside(None, tested) == []
