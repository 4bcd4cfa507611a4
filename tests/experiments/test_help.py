"""One help page for each experiment, made without JAX."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from experiments.__main__ import experiments
from experiments._frame import standins

ROOT = Path(__file__).parents[2]
NAMES = [one.name for one in experiments()]
# Prints the page of an experiment, made with stand-ins or without, and what was loaded.
PAGE = """
import contextlib, importlib.util, io, json, sys
from experiments._frame import standins
if sys.argv[1] == "standins":
    standins.install()
pages = {}
for name in sys.argv[2:]:
    page = io.StringIO()
    module = f"experiments.{name}"
    if importlib.util.find_spec(module).submodule_search_locations:
        module += ".main"
    with contextlib.redirect_stdout(page), contextlib.suppress(SystemExit):
        importlib.import_module(module).main(["--help"])
    pages[name] = page.getvalue()
loaded = [n for n in ("jax", "scipy") if hasattr(sys.modules.get(n), "__version__")]
print(json.dumps([pages, loaded]))
"""


def pages(how, names):
    """Help pages by name, and the libraries that were loaded for them."""
    done = subprocess.run(
        [sys.executable, "-c", PAGE, how, *names],
        cwd=ROOT,
        env={**os.environ, "COLUMNS": "100", "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (["python", "-m", "experiments.cot", "--preset", "cpu", "--help"], True),
        (["python", "-m", "experiments.cot", "-h"], True),
        (["python", "-m", "experiments.cot", "--preset", "cpu"], False),
        (["python", "-m", "pytest", "--help"], False),
        (["python", "script.py", "--help"], False),
        (["python", "-m"], False),
    ],
)
def test_only_a_help_page_has_stand_ins(line, expected):
    assert standins.only_help(line) is expected


def test_stand_ins_take_part_in_what_modules_do_while_they_are_imported():
    thing = standins.StandIn()

    class Child(thing.Module):
        size: int = 3

    assert Child.size == 3
    assert thing.dataclass(Child) is Child
    assert isinstance(thing.jit(lambda x: x), standins.StandIn)
    assert not isinstance(3, thing.core.Tracer)
    for made in (thing + 1, 2 * thing, -thing, thing[0], thing | None, thing.Array | 1):
        assert made is not NotImplemented
    assert list(thing) == []
    with pytest.raises(AttributeError):
        _ = thing.__version__


@pytest.mark.slow
def test_every_page_is_the_one_that_is_made_with_the_libraries():
    found, loaded = pages("standins", NAMES)
    assert loaded == []
    expected, loaded = pages("libraries", NAMES)
    assert loaded == ["jax", "scipy"]
    assert list(found) == NAMES
    for name in NAMES:
        assert found[name] == expected[name], name
        assert f"usage: python -m experiments.{name} " in found[name]


@pytest.mark.slow
def test_every_option_is_described():
    """Each option has its line of documentation besides its default."""
    found, _ = pages("standins", NAMES)
    for name in set(NAMES) - {"ledger"}:
        assert "--preset {" in found[name]
        assert "--resume" in found[name]
        bare = undescribed(found[name])
        assert not bare, (name, bare)


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
