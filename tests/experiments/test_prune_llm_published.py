"""Tables 2 to 8 as data: against the text of the paper, and what the loader refuses."""

import copy
import json
import re
from pathlib import Path

import pytest

from experiments.prune_llm.published import FILE, published_rows, read_rows
from experiments.prune_llm.subject import PUBLISHED_LAYERS

PAPER = Path(__file__).parents[2].parent / "shared/papers/yao2024_svd_pruning.md"
TASKS = ("sst2", "agnews", "emoc", "mrpc", "rte", "cb", "copa")
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
    stored = json.loads(FILE.read_text())["rows"]
    for number, (row, mine) in enumerate(zip(found, stored, strict=True)):
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


def test_the_layers_are_those_of_the_scripts():
    for row in published_rows():
        (layers,) = (v for (f, _), v in PUBLISHED_LAYERS.items() if f == row.family)
        assert layers[row.module] == row.layer


def test_rte_and_cb_were_divided_by_n_minus_1():
    fits = {row.task: row.denominator for row in published_rows()}
    less, all_of_them = dict.fromkeys(("rte", "cb"), "n-1"), ("agnews", "emoc", "mrpc")
    few_digits = dict.fromkeys(("sst2", "copa"), "both")
    assert fits == {**dict.fromkeys(all_of_them, "n"), **less, **few_digits}
    assert {row.task for row in published_rows() if row.mark == "*"} == {"rte", "cb"}


@pytest.mark.parametrize(
    ("place", "change", "message"),
    [
        (3, {"task": "copa"}, "rows: expected one row for each of the 28"),
        (0, {"rate": "0.96"}, "sst2, GPT-J-6B, mlp: expected a rate of the paper, got"),
        (1, {"before": "0.7528"}, "sst2, GPT-J-6B, attn: expected 0.7527 before"),
        (5, {"layer": 26}, "agnews, GPT-J-6B, attn: expected layer 27, got 26"),
        (17, {"after": "0.57246"}, "rte, GPT-J-6B, attn: expected no change at rate 0"),
        (4, {"after": "0.76950"}, "agnews, .* expected counts over 7600 or one less"),
    ],
)
def test_a_wrong_row_is_refused(place, change, message):
    stored = copy.deepcopy(json.loads(FILE.read_text()))
    stored["rows"][place] |= change
    with pytest.raises(ValueError, match=message):
        read_rows(stored)
