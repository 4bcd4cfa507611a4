"""Every case of the benchmarks at a tiny size: both answers, and what is counted."""

import dataclasses
import importlib
from types import SimpleNamespace

import numpy as np
import pytest

from benchmarks import machine
from benchmarks.cases import launches
from benchmarks.suite import EXACT, FLOAT64, measure, once
from icltheory import regression as reg
from icltheory.training import Curriculum

PEAK, BANDWIDTH = 1e9, 1e8
SMALL = {"dim": 2, "num_points": 5, "width": 8, "num_layers": 1, "num_heads": 2}
SMALL |= {"batch_size": 2, "curriculum": Curriculum.none(2, 5)}


class Benchmark:
    """Stands for the fixture of pytest-benchmark."""

    def __init__(self):
        self.group, self.param, self.extra_info = "group", "name", {}

    def pedantic(self, target, setup, rounds):
        times = []
        for _ in range(rounds):
            setup()
            result, took = once(target)
            times.append(took)
        self.rounds, median = rounds, float(np.median(times))
        self.stats = SimpleNamespace(stats=SimpleNamespace(median=median))
        return result


@pytest.fixture(autouse=True)
def _known_machine(monkeypatch):
    kinds = "float32", "float32 at reduced precision", "float64", "bfloat16"
    peaks = {f"{kind} product GFLOP/s": PEAK / 1e9 for kind in kinds}
    peaks[machine.MEMORY] = BANDWIDTH / 1e9
    monkeypatch.setattr(machine, "PEAKS", peaks)
    monkeypatch.setattr("benchmarks.suite.TURNS", 0.0)
    monkeypatch.setattr("benchmarks.suite.ENTRIES", [])


def run(name, args, within=EXACT):
    """Runs a case of a module, named "module.function"."""
    module, function = name.split(".")
    case = getattr(importlib.import_module(f"benchmarks.cases.{module}"), function)
    with within():
        pair = case.build(*args)
        return pair, measure(Benchmark(), pair)


def set_all(monkeypatch, module, **values):
    for name, value in values.items():
        monkeypatch.setattr(f"benchmarks.cases.{module}.{name}", value)


def check(pair, entry, floor=True):
    about = entry["extra_info"]
    assert entry["stats"]["median"] > 0
    assert about["alternative_s"] > 0
    assert about["alternative"]
    assert about["error"] <= about["tolerance"]
    assert (pair.floor is not None) == floor


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "args", "within", "floor", "small"),
    [
        ("trajectory.bench_norms", (2, 3, 4), EXACT, True, {}),
        ("exact_risk.bench_risk", (2, 4), EXACT, False, {"PROMPTS": 100}),
        ("pruning_sweep.bench_sweep", (1, "attn"), EXACT, True, {
            "PROMPTS": 2, "POINTS": 3, "DIM": 2, "WIDTH": 8, "LAYERS": 2,
        }),
        ("flow.bench_flow", (2.0, "RK45", 20.0), FLOAT64, False, {
            "DIM": 2, "M": 3, "time_to_target": lambda task: 20.0,
        }),
        ("theory.bench_many", ("Remark 5's table", 6), EXACT, False, {
            "BATCH": 3, "COMPARE": 2,
        }),
        ("first_calls.bench_call", (reg.gap, "task"), FLOAT64, False, {}),
        ("exact_risk.bench_head", (2, 4), FLOAT64, False, {"PROMPTS": 500}),
    ],
)  # fmt: skip
def test_a_case_agrees_with_its_alternative(
    name, args, within, floor, small, monkeypatch
):
    set_all(monkeypatch, name.split(".")[0], **small)
    check(*run(name, args, within), floor=floor)


@pytest.mark.slow
def test_a_bound_counts_operations_and_bytes():
    from benchmarks.cases import bounds

    pair, entry = run("bounds.bench_bound", (2, 6, 3, 4, 2))
    check(pair, entry)
    flops, moved = 4 * bounds.operations(2, 6, 3), 8 * (3 * 2 * 9 + 4 * 6 * 3)
    assert pair.floor == max(flops / PEAK, moved / BANDWIDTH)
    assert entry["extra_info"]["note"] == "alternative timed on 2 of 4 prompts"
    _, alone = run("bounds.bench_bound", (2, 6, 3, 1, 0))
    assert alone["extra_info"]["alternative_s"] is None
    assert "does not fit" in alone["extra_info"]["note"]


@pytest.mark.slow
def test_predictors(monkeypatch):
    from benchmarks.cases import predictors

    set_all(monkeypatch, "predictors", PROMPTS=2, POINTS=4)
    make, rule, flops = predictors.RULES["ridge"]
    check(*run("predictors.bench_predictor", (make, rule, flops)))
    with pytest.raises(AssertionError, match="answers: expected a difference of at"):
        run("predictors.bench_predictor", (make, lambda X, y, x: 1.0, flops))


@pytest.mark.slow
def test_recurrent(monkeypatch):
    from benchmarks.cases import predictors

    long = {"prompts": 2, "points": 9, "dim": 3, "chunk": 4}
    set_all(monkeypatch, "predictors", LONG=long)
    for kind, *_ in predictors.LEARNERS.values():
        check(*run("predictors.bench_chunks", (kind, 0.1, 0.9)))


@pytest.mark.slow
def test_prune_search(monkeypatch):
    from benchmarks.cases import prune_search

    model = (prune_search.gpt_j(2, 256, 64), "float32", 3, 2)
    set_all(monkeypatch, "prune_search", MODEL=model, SAMPLE=2, RATES=(0.0, 0.5))
    pair, entry = run("prune_search.bench_search", (1, "mlp"))
    check(pair, entry)
    assert "alternative timed on 2 of 3 prompts" in entry["extra_info"]["note"]
    search, plain = pair.ours(), pair.alternative()
    wrong = [dataclasses.replace(e, predictions=1 - e.predictions) for e in plain]
    with pytest.raises(ValueError, match="predictions: expected the same up to"):
        prune_search.compare(search, wrong, exact=True)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["train_step.bench_step", "ensemble.bench_ensemble"])
def test_training(name, monkeypatch):
    from benchmarks import garg

    published = garg.published
    module = name.split(".")[0]
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    change = lambda **given: published(**SMALL, **given)  # noqa: E731
    set_all(monkeypatch, module, published=change)
    if module == "ensemble":
        check(*run(name, (2, None)))
    else:
        _, entry = run(name, ({"precision": "float32"},))
        assert entry["extra_info"]["note"].startswith("PyTorch is not installed")
        assert entry["extra_info"]["facts"]["tokens/s"] > 0
        assert entry["extra_info"]["per"] == 10


PROGRAM = """HloModule jit_scan

%fused (p: f32[2]) -> f32[2] {
  %p = f32[2]{0} parameter(0)
  ROOT %e = f32[2]{0} exponential(%p)
}

%called (p: f32[2]) -> f32[2] {
  %p = f32[2]{0} parameter(0)
  %k = f32[2]{0} custom-call(%p), custom_call_target="__gpu$xla.gpu.triton"
  ROOT %f = f32[2]{0} fusion(%k), kind=kLoop, calls=%fused
}

%body (state: (s32[], f32[2])) -> (s32[], f32[2]) {
  %state = (s32[], f32[2]{0}) parameter(0)
  %x = f32[2]{0} get-tuple-element(%state), index=1
  %n = s32[] get-tuple-element(%state), index=0
  %d = f32[2]{0} custom-call(%x), custom_call_target="__cublas$lt$matmul"
  %a = f32[2]{0} custom-call(%d), custom_call_target="__cudnn$fmhaSoftmax"
  %c = f32[2]{0} copy(%a)
  %y = f32[2]{0} call(%c), to_apply=%called
  %s = s32[] add(%n, %n)
  ROOT %t = (s32[], f32[2]{0}) tuple(%s, %y)
}

ENTRY %main (p: f32[2]) -> f32[2] {
  %p = f32[2]{0} parameter(0)
  %w = (s32[], f32[2]{0}) while(%p), condition=%cond, body=%body
  ROOT %r = f32[2]{0} get-tuple-element(%w), index=1
}
"""


def test_launches_in_the_body_of_the_loop_are_counted_by_kind():
    kinds = {*launches.KINDS.values(), "fusion", "copy", "other"}
    assert launches.count(PROGRAM) == dict.fromkeys(kinds, 1)
    without = PROGRAM.replace("while(%p), condition=%cond, body=%body", "tuple(%p)")
    with pytest.raises(ValueError, match="program: expected one loop at its top"):
        launches.count(without)
