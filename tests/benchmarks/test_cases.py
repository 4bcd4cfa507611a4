"""The benchmarks on sizes of no weight: both answers, and what is counted."""

import dataclasses
import functools
import importlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks import _measure
from benchmarks._registry import BENCHMARKS
from benchmarks._suite import Budget
from icltheory.training import Curriculum

PEAK, BANDWIDTH = 1e9, 1e8


def case(name):
    """A benchmark, imported where it is tested: all of them take seconds."""
    return importlib.import_module(f"benchmarks.{name}")


@pytest.fixture(autouse=True)
def _known_machine(monkeypatch):
    kinds = ("float32", "highest"), ("float64", "highest"), ("float32", None)
    known = {_measure.product_name(*kind): PEAK / 1e9 for kind in kinds}
    monkeypatch.setattr(_measure, "KNOWN", {**known, _measure.MEMORY: BANDWIDTH / 1e9})


def check(row, floor=True):
    assert row.ours_s > 0
    assert row.alternative_s > 0
    assert row.alternative
    assert not row.bad, row
    assert (row.floor_s is not None) == floor


@pytest.mark.slow
def test_every_benchmark_offers_what_the_suite_calls():
    for name in BENCHMARKS:
        assert callable(case(name).measure), name


def test_a_floor_is_the_slower_of_operations_and_bytes():
    assert _measure.floor(2e9) == 2.0
    assert _measure.floor(2e9, 1e8) == 2.0
    assert _measure.floor(2e9, 5e8) == 5.0


def test_peaks_are_measured_once(monkeypatch):
    measured = []
    monkeypatch.setattr(_measure, "KNOWN", {})
    monkeypatch.setattr(
        _measure, "_products", lambda *kind: measured.append(kind) or 2e9
    )
    monkeypatch.setattr(_measure, "_passes", lambda: 5e8)
    assert (_measure.peak_flops(), _measure.peak_flops("float32", None)) == (2e9, 2e9)
    assert _measure.peaks()["float64 product GFLOP/s"] == 2.0
    assert len(measured) == 4
    assert _measure.bandwidth() == 5e8


def test_disagreement_is_relative_to_the_largest_value():
    assert _measure.disagreement([1.0, 2.0], [1.0, 4.0]) == 0.5
    assert _measure.disagreement([1e-3], [0.0]) == 1e-3
    assert np.isnan(_measure.disagreement([np.nan, 1.0], [0.0, 1.0]))
    with pytest.raises(ValueError, match="ours: expected shape"):
        _measure.disagreement([1.0], [1.0, 2.0])


def test_calls_take_turns_until_the_limit():
    calls = []
    one, two = (functools.partial(calls.append, name) for name in "ab")
    assert len(_measure.in_turns(one, two, repeats=2)) == 2
    assert "".join(calls) == "ab" + "abab"
    calls.clear()
    _measure.in_turns(one, two, repeats=2, limit=0.0)
    assert "".join(calls) == "ab" + "ab"


def test_a_part_of_a_loop_is_scaled():
    answers, seconds = _measure.part_of_loop(lambda a, b: a + b, [(1, 2), (3, 4)], 200)
    assert answers == [3, 7]
    assert seconds > 0


def test_what_a_program_needs():
    program, facts = _measure.compiled(lambda x: x + 1, jnp.ones(3))
    assert program(jnp.ones(3)).tolist() == [2.0, 2.0, 2.0]
    assert facts["compile s"] > 0


@pytest.mark.slow
def test_trajectory():
    trajectory = case("trajectory")
    check(trajectory.row(2, 3, 4))
    row = trajectory.depth(4, 3, 4)
    assert 0 < row.error < row.tolerance
    # The cheapest path follows the shapes: factors, dense, the Gram matrix.
    assert trajectory.operations(1, 1, 1000) < 10 * 1000**2
    assert trajectory.operations(1, 10**6, 10) == 12 * 10**3


@pytest.mark.slow
def test_bounds():
    bounds = case("bounds")
    row = bounds.row(2, 6, 3, 4, 2)
    check(row)
    assert "scaled" in row.note
    flops = 4 * bounds.operations(2, 6, 3)
    moved = 8 * (3 * 2 * 9 + 4 * 6 * 3)
    assert row.floor_s == max(flops / PEAK, moved / BANDWIDTH)
    assert bounds.row(2, 6, 3, 1, 0).alternative_s is None


@pytest.mark.slow
def test_predictors():
    predictors = case("predictors")
    X = jax.random.normal(jax.random.key(0), (2, 4, predictors.DIM), jnp.float32)
    y = X[..., 0]
    pair = predictors.pairs(X[0])["ridge"]
    row = predictors.row(pair, X, y)
    check(row)
    wrong = pair._replace(rule=lambda X, y, x: 1.0)
    assert predictors.row(wrong, X, y).wrong


@pytest.mark.slow
def test_exact_risk(monkeypatch):
    exact_risk = case("exact_risk")
    monkeypatch.setattr(exact_risk, "PROMPTS", 100)
    check(exact_risk.against(2, 4), floor=False)


@pytest.mark.slow
def test_flow(monkeypatch):
    flow = case("flow")
    monkeypatch.setattr(flow, "time_to_target", lambda task: 20.0)
    monkeypatch.setattr(flow, "DIM", 2)
    monkeypatch.setattr(flow, "M", 3)
    for row in flow.rows(2.0, 20.0):
        check(row, floor=False)
    stopped = flow.row(2.0, None, 1.0, "", "RK45", None, 20.0)
    assert stopped.error is None
    assert "lower bound" in stopped.note


@pytest.mark.slow
def test_pruning_sweep(monkeypatch):
    pruning_sweep = case("pruning_sweep")
    small = {"PROMPTS": 2, "POINTS": 3, "DIM": 2, "WIDTH": 8, "LAYERS": 2}
    for name, value in small.items():
        monkeypatch.setattr(pruning_sweep, name, value)
    row = pruning_sweep.row(1, "attn")
    check(row)
    assert "1 compilation" in row.note


@pytest.mark.slow
def test_prune_search(monkeypatch):
    prune_search = case("prune_search")
    arch = prune_search.gpt_j(2, 256, 64)
    small = prune_search.SearchCase(arch, jnp.float32, 3, 2, ((1, "mlp"),))
    monkeypatch.setattr(prune_search, "CPU", small)
    monkeypatch.setattr(prune_search, "SAMPLE", 2)
    monkeypatch.setattr(prune_search, "RATES", (0.0, 0.5))
    (row,) = prune_search.measure(Budget(1000.0))
    check(row)
    assert "alternative timed on 2 prompts" in row.note
    assert "0 differ" in row.note


@pytest.mark.slow
def test_train_step(monkeypatch):
    train_step = case("train_step")
    monkeypatch.setattr(train_step.importlib.util, "find_spec", lambda name: None)
    small = {"dim": 2, "num_points": 5, "width": 8, "num_layers": 1, "num_heads": 2}
    curriculum = Curriculum.none(small["dim"], small["num_points"])
    changed = {**train_step.changes(False)["Adam"], **small, "batch_size": 2}
    config = dataclasses.replace(
        train_step.PRESETS["cpu"], curriculum=curriculum, **changed
    )
    row = train_step.row(config)
    assert row.ours_s > 0
    assert row.note.startswith("PyTorch is not installed")
