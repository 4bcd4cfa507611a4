"""Every documented example runs as written."""

import collections
import doctest
import importlib
import pkgutil
import re
from pathlib import Path

import pytest

import icltheory
from experiments.ledger.statements import STATEMENTS

ROOT = Path(__file__).parents[1]


def tier(name):
    """The module; slow if its examples compute with JAX, and so compile programs."""
    path = ROOT / name.replace(".", "/")
    source = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    computes = re.search(
        r"^ *(>>>|\.\.\.) .*(jnp\.|jax\.|isotropic)", source.read_text(), re.M
    )
    return pytest.param(name, marks=[pytest.mark.slow] if computes else [])


MODULES = [
    tier(module.name)
    for module in pkgutil.walk_packages(icltheory.__path__, "icltheory.")
    if not module.ispkg or module.name.count(".") == 1
]


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings_run(name):
    module = importlib.import_module(name)
    result = doctest.testmod(module, optionflags=doctest.NORMALIZE_WHITESPACE)
    assert result.failed == 0, f"{result.failed} failing examples in {name}"


BLOCKS = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(2))
def test_the_readmes_examples_run(number, monkeypatch):
    monkeypatch.chdir(ROOT)
    assert len(BLOCKS) == 2
    assert len(BLOCKS[number].strip().splitlines()) <= 14
    exec(compile(BLOCKS[number], "README.md", "exec"), {})


def test_the_readmes_count_of_statements_is_the_ledgers():
    readme = " ".join((ROOT / "README.md").read_text().split())
    counted = collections.Counter(said.status for said in STATEMENTS)
    assert f"Of {len(STATEMENTS)} statements {counted['exact']} are exact" in readme
    for status, words in (
        ("true", "true inequalities"),
        ("conditional", "true under a stated"),
        ("false as written", "false as written"),
        ("empirical", "empirical"),
    ):
        assert re.search(rf"\b{counted[status]} {words}", readme), status
