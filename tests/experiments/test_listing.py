"""``python -m experiments`` lists every experiment as it is."""

import importlib

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


def test_all_are_printed(capsys):
    main([])
    printed = capsys.readouterr().out
    assert all(f" {one.name} " in printed for one in LISTED)
    assert len(printed.splitlines()) == len(LISTED) + 1


def test_the_readme_has_the_same_list():
    text = README.read_text()
    assert readme_table() in text, "python -m experiments --readme writes it"
    assert text.count("| `") == len(LISTED)
