"""Every documented example runs as written."""

import collections
import doctest
import importlib
import json
import os
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import icltheory
from experiments.ledger.statements import STATEMENTS, claimed
from experiments.real_model.fetch import FILE

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


README = (ROOT / "README.md").read_text()


EXAMPLES = {
    code: shown
    for code, shown in re.findall(
        r"```python\n(.*?)```\n```text\n(.*?)```", README, re.DOTALL
    )
}
SCRIPTS = {path.name: path.read_text() for path in (ROOT / "examples").glob("*.py")}


def test_the_readmes_examples_are_the_scripts():
    assert sorted(SCRIPTS.values()) == sorted(EXAMPLES)
    assert all(f"(examples/{name})" in README for name in SCRIPTS)
    assert all(len(line) <= 88 for code in EXAMPLES for line in code.splitlines())


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(SCRIPTS))
def test_the_readmes_examples_print_what_is_shown(name):
    command = [sys.executable, f"examples/{name}"]
    if name == "language_model.py":
        file = Path("~/.cache/icltheory").expanduser() / FILE
        if not file.is_file():
            pytest.skip("the language model is not on this machine")
        command.append(str(file))
    # In a process of its own, in float32, optimised and with the threads of a user's.
    env = os.environ | {"XLA_FLAGS": "", "NPROC": ""}
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=env)
    assert not done.returncode, done.stderr
    number, shown = re.compile(r"\d+(?:\.\d+)?"), EXAMPLES[SCRIPTS[name]]
    assert number.sub("#", done.stdout) == number.sub("#", shown)
    found, said = (np.array(number.findall(t), float) for t in (done.stdout, shown))
    # The draws are those of every machine; training enlarges their rounding.
    tolerance = 0.3 if "training.fit" in SCRIPTS[name] else 0.01
    np.testing.assert_allclose(found, said, rtol=tolerance, atol=1e-4)


def test_the_readmes_counts_are_the_ledgers():
    words = " ".join(README.split())
    count = collections.Counter(said.status for said in STATEMENTS)
    proved = sum(said.evidence == "proof" for said in STATEMENTS)
    bare, false = sum(not claimed(s) for s in STATEMENTS), count["false as written"]
    assert f"lists {len(STATEMENTS)} statements of the papers" in words
    assert (
        f"{proved} are proved here, {false} are false as written, {bare} have" in words
    )
    index = (ROOT / "docs" / "reference" / "index.md").read_text()
    assert f"\n{len(STATEMENTS)} statements of the papers" in index


def stored(name):
    path = ROOT / "experiments" / "results" / name / "result.json"
    return json.loads(path.read_text())


def test_the_readmes_numbers_are_the_stored_results():
    words = " ".join(README.split())
    rows = stored("bound_vs_error")["tables"][0]
    row = dict(zip(rows["columns"], rows["rows"][9], strict=True))
    assert row["d N b L"] == "5 1000 20 2"
    held_out, error = float(row["N/2"]), float(row["error (se)"].split()[0])
    assert f"it is {held_out:.3f}. The gap is {error:.4f}" in words
    setting = stored("ltb_gap")["settings"][3]
    lsa, ltb = (f"{setting[name]:.3f}" for name in ("lsa", "ltb"))
    assert f"falls from {lsa} to {ltb}" in words
    searches = stored("real_model_night")["searches"]
    assert len({row["task"] for row in searches}) == 7
    own = [r for r in searches if r["arm"] == "algorithm1" and r["draw"] == 0]
    (one,) = (row for row in own if (row["holm"] or 1) < 0.05)
    (scale,) = (
        row
        for row in searches
        if (row["task"], row["module"], row["arm"])
        == (one["task"], one["module"], "scale")
    )
    assert scale["difference"] >= one["difference"]
    assert "gains more than luck explains on one of seven data sets" in words
