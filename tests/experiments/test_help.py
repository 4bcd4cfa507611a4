"""The list of experiments as they are, and a help page for each with every option."""

import importlib
import re
import sys

import pytest

from experiments.__main__ import README, experiments, main, readme_table

LISTED = experiments()


@pytest.mark.parametrize("one", LISTED, ids=lambda one: one.name)
def test_what_is_listed_is_what_there_is(one):
    module = importlib.import_module(f"experiments.{one.name}")
    assert one.summary == module.__doc__.splitlines()[0]
    assert list(one.presets) == list(getattr(module, "PRESETS", {}))
    if one.presets:
        if hasattr(module, "__path__"):
            module = importlib.import_module(f"experiments.{one.name}.config")
        assert set(module.TIMES) <= set(one.presets)


def test_all_are_printed_and_stand_in_the_readme(capsys):
    main([])
    printed, text = capsys.readouterr().out, README.read_text()
    assert all(f" {one.name} " in printed for one in LISTED)
    assert len(printed.splitlines()) == len(LISTED) + 1
    assert readme_table() in text, "python -m experiments --readme writes it"
    assert text.count("| `") == len(LISTED)


@pytest.mark.slow
@pytest.mark.parametrize("name", [one.name for one in LISTED])
def test_every_option_is_described(name, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    experiment = importlib.import_module(f"experiments.{name}")
    if hasattr(experiment, "__path__"):
        experiment = importlib.import_module(f"experiments.{name}.main")
    with pytest.raises(SystemExit) as ended:
        experiment.main(["--help"])
    assert not ended.value.code
    page = capsys.readouterr().out
    assert f"usage: python -m experiments.{name} " in page
    if name != "ledger":
        assert sys.modules[f"experiments.{name}"].__doc__.splitlines()[0] in page
        assert "--preset {" in page
        assert "--resume" in page
        assert not undescribed(page)


def undescribed(page):
    """Options whose help is their default alone."""
    rows = [line.strip("│| \n") for line in page.splitlines()]
    words = [row for row in rows if not re.fullmatch(r"[-─+╭╰╮╯ \w.]*[-─]{3,}\W*", row)]
    _, *parts = re.split(r"(?:^|  )(--?[a-z][\w.-]*)", "  ".join(words))
    # An option's metavariable stands before two spaces; its help behind them.
    helps = zip(parts[::2], (p.split("  ", 1) for p in parts[1::2]), strict=True)
    return [
        name
        for name, (_, *text) in helps
        if not " ".join(text).partition("(default")[0].strip(" ,")
    ]


def test_an_option_without_a_description_is_noticed():
    rows = ["--steps INT  Training steps. (default: 3)", "--seeds INT  (default: 0)"]
    page = "\n".join(["usage: x", "╭─ options ──────╮", *(f"│ {r}  │" for r in rows)])
    assert undescribed(page) == ["--seeds"]
