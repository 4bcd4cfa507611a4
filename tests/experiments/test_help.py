"""One help page for each experiment, with every option described."""

import importlib
import re
import sys

import pytest

from experiments.__main__ import experiments

NAMES = [one.name for one in experiments()]


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
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
