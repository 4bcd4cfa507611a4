"""Rates that leave no rank of a module are left out of it, and nothing else changes."""

import dataclasses

import numpy as np
import pytest

from experiments import prune_llm
from experiments.prune_llm import figures, report, subject
from experiments.prune_llm.findings import findings
from experiments.prune_llm.tables import algorithm1_rows, panel, races
from tests.experiments.test_prune_llm import made_up


def test_a_rate_that_leaves_no_rank_is_left_out_of_the_module_and_the_row_says_so():
    study = made_up(gain=0.3)
    small = [
        row._replace(shape=(8, 32)) if row.module == "attn" else row
        for row in study.conditions
    ]
    study = dataclasses.replace(study, conditions=tuple(small))
    assert (study.rates("mlp"), study.rates("attn")) == ((0, 0.5, 0.9), (0, 0.5))
    rows = algorithm1_rows(study, study.judged_cases)
    sentences = findings(study, rows, [], [], None)
    assert [races(study, row)["full_evaluations"] for row in rows] == [1200, 800]
    assert [r.result.rates for r in rows] == [(0, 0.5, 0.9), (0, 0.5)]
    told = "Rates that were left out of attn: 0.9 leaves rank 0 of 8."
    assert told in sentences
    table = report.algorithm1_table(study, rows)
    rates = next(c for c in table.columns if c.header == "rate")
    assert list(rates.cells) == ["0.5", "0 (0.9 leaves rank 0 of 8)"]
    case = study.main_case("toy")
    assert panel(study, case, "attn").accuracy.shape == (3, 2)
    grid = report._grid(study, "toy")["accuracy"]["4"]
    assert np.isnan(grid["attn"]).tolist() == [[False, False, True]] * 3
    assert np.isfinite(grid["mlp"]).all()
    found = figures._panels(study, case, "attn", "toy")
    assert [len(panel.rates) for panel in found.values()] == [2]


def test_with_at_least_one_no_rate_is_left_out():
    study = made_up(gain=0.3)
    small = [row._replace(shape=(8, 32)) for row in study.conditions]
    config = dataclasses.replace(study.config, at_least_one=True)
    study = dataclasses.replace(study, conditions=tuple(small), config=config)
    assert study.rates("attn") == (0, 0.5, 0.9)
    assert study.left_out("attn") == ""


def test_the_revision_reaches_the_loader(monkeypatch):
    asked = []

    def load(name, dtype, *, revision):
        asked.append((name, dtype, revision))
        raise ImportError("no hub here")

    monkeypatch.setattr(subject, "load_checkpoint", load)
    for words in (
        ["--checkpoint", "some/name", "--dtype", "bfloat16", "--revision", "v1"],
        ["evaluate", "--model", "some/name", "--task", "nonce", "--revision", "v1"],
        ["evaluate", "--model", "some/name", "--task", "nonce"],
    ):
        with pytest.raises(ValueError, match="^no hub here"):
            prune_llm.main(words)
    assert asked == [
        ("some/name", "bfloat16", "v1"),
        ("some/name", None, "v1"),
        ("some/name", None, None),
    ]
