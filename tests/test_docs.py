"""Every documented example runs as written."""

import collections
import doctest
import importlib
import json
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import pytest

import icltheory
from experiments.__main__ import experiments
from experiments.ledger.statements import STATEMENTS, claimed

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


@pytest.mark.slow
def test_the_readmes_example_prints_what_is_shown():
    [code] = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    [shown] = re.findall(r"```\n(bound .*?)```", README, re.DOTALL)
    assert len([line for line in code.splitlines() if line]) <= 10
    # In a process of its own, which is in float32 as a user's is.
    run = [sys.executable, "-c", code]
    done = subprocess.run(run, capture_output=True, text=True, check=True, cwd=ROOT)
    printed = done.stdout
    number = re.compile(r"\d+\.\d+")
    assert number.sub("#", printed) == number.sub("#", shown)
    values = [[float(x) for x in number.findall(text)] for text in (printed, shown)]
    # The prompts are random, and their bits are those of every machine.
    assert values[0] == pytest.approx(values[1], rel=0.01)


def test_the_readmes_counts_are_the_ledgers():
    words = " ".join(README.split())
    count = collections.Counter(said.status for said in STATEMENTS)
    proved = sum(said.evidence == "proof" for said in STATEMENTS)
    bare = sum(not claimed(said) for said in STATEMENTS)
    assert f"of {len(STATEMENTS)} statements of the papers names" in words
    assert f"{proved} have a written proof" in words
    assert f"{bare} statements have no test" in words
    assert f"{count['false as written']} are false as written" in words
    for status in ("reproduced", "not reproduced", "impossible in the stated model"):
        assert f" {count[status]} are {status}" in words
    last = "not tested at the published setting"
    assert f" {count[last]} are {last}" in words
    index = (ROOT / "docs" / "reference" / "index.md").read_text()
    assert f"\n{len(STATEMENTS)} statements of the papers" in index
    assert f"and {len(experiments())} experiments" in words


def stored(name):
    path = ROOT / "experiments" / "results" / name / "result.json"
    return json.loads(path.read_text())


def test_the_readmes_run_on_a_gpu_is_the_stored_one():
    found, words = stored("garg_linear_gpu"), " ".join(README.split())
    mean = found["curves"]["Transformer"]["mean"]
    near, far = f"{mean[20]:.3f}", f"{mean[40]:.4f}"
    assert f"{near} and {far} for 0.02 and 0.0006, in 155 s" in words
    assert f"{found['timing']['train_seconds']:.0f} s of them training" in words


def test_the_readmes_numbers_are_the_stored_results():
    words = " ".join(README.split())
    rows = stored("bound_vs_error")["tables"][0]
    row = dict(zip(rows["columns"], rows["rows"][9], strict=True))
    assert row["d N b L"] == "5 1000 20 2"
    exact = stored("bound_vs_error")["rows"]["GD d=5 N=1000 b=20 L=2"]["exact"]
    assert f"it is {exact['value']:.3f}, and" in words
    held_out, error = float(row["N/2"]), float(row["error (se)"].split()[0])
    assert f"and {held_out:.3f} with a prior fitted to half of the examples" in words
    assert f"clipped at 2, is {error:.4f} larger on new examples" in words
    setting = stored("ltb_gap")["settings"][3]
    lsa, ltb, bayes = (f"{setting[name]:.3f}" for name in ("lsa", "ltb", "bayes"))
    assert f"falls from {lsa} to {ltb}; the Bayes predictor has {bayes}" in words
    night = stored("real_model_night")
    arms = {(row["module"], row["search"]): row for row in night["arms"]}
    rows = {(r["task"], r["module"], r["arm"]): r for r in night["searches"][::-1]}
    emoc = rows["emoc", "attn", "algorithm1"], rows["emoc", "attn", "scale"]
    assert emoc[0]["draw"] == 0
    spans = [
        "{mean:+.3f} ({low:+.3f} to {high:+.3f})".format(**arms[module, "Algorithm 1"])
        for module in ("mlp", "attn")
    ]
    gain = "by {difference:.3f} (95 % interval {low:.3f} to {high:.3f})"
    assert (
        f"rises {gain.format(**emoc[0])}, and by {emoc[1]['difference']:.3f}" in words
    )
    assert "data sets is {} for the MLP and {} for attention".format(*spans) in words
    claims = {c["claim"]: c["measured"] for c in stored("prune_icl")["claims"]}
    pruned, exhaustive, scaled = (
        re.search(
            r"mean change -(\d+\.\d)%",
            claims[f"{name} lowers the test error (label noise)"],
        )[1]
        for name in ("Algorithm 1", "exhaustive", "scaled answer")
    )
    assert (
        f"Algorithm 1 lowers the error by {pruned} %, exhaustive pruning by "
        f"{exhaustive} %, one factor on all answers by {scaled} %"
    ) in words
