"""Choices by measurement, with a clock that tells what the test wants."""

import functools
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from icltheory.kernels import Plan, Tile, choose, tune, tuning
from icltheory.kernels.plan import KERNELS
from icltheory.kernels.tuning import SUBJECTS, Problem, TuningSubject
from icltheory.training import loop

GOOD = np.linspace(0.0, 1.0, 5, dtype=np.float32)


class Clock:
    """Time that passes only when a candidate runs, and how often each did."""

    def __init__(self, seconds, drift=0.0):
        self.now, self.seconds, self.drift, self.order = 0.0, seconds, drift, []

    def __call__(self):
        return self.now

    def make(self, results, candidate):
        def call():
            self.order.append(candidate)
            self.now += self.seconds[candidate] + self.drift * len(self.order)
            return results.get(candidate, GOOD)

        return call


def pick(seconds, results=None, drift=0.0, **kwargs):
    clock = Clock(seconds, drift)
    make = functools.partial(clock.make, results or {})
    return choose(list(seconds), make, clock=clock, **kwargs), clock


def test_the_fastest_median_wins_and_the_table_keeps_the_order():
    choice, _ = pick({"twin": 3.0, "a": 1.0, "b": 2.0})
    assert choice.best == "a"
    assert [row.candidate for row in choice.table] == ["twin", "a", "b"]
    assert [row.seconds for row in choice.table] == pytest.approx([3.0, 1.0, 2.0])
    assert [row.error for row in choice.table] == [0.0, 0.0, 0.0]


def test_of_equals_the_plain_one_is_kept():
    assert pick({"twin": 1.0, "a": 1.0})[0].best == "twin"


def test_candidates_take_turns_so_that_drift_hits_all_alike():
    # One after the other, the slower one would be measured first and win.
    choice, clock = pick({"twin": 1.0, "a": 1.1}, drift=0.05, repeats=5)
    assert clock.order == ["twin", "a"] * 6
    assert choice.best == "twin"


def test_one_slow_call_decides_nothing():
    times = iter([0.0, 9.0] + [0.0, 1.0] * 2)
    clock = Clock({"twin": 0.0})
    choice = choose(
        ["twin"],
        functools.partial(clock.make, {}),
        repeats=3,
        clock=functools.partial(next, times),
    )
    assert choice.table[0].seconds == 1.0


def test_a_wrong_candidate_is_dropped_however_fast():
    unit = float(jnp.finfo(jnp.bfloat16).eps)
    results = {"wrong": GOOD * (1 + 20 * unit), "rounded": GOOD * (1 + 8 * unit)}
    choice, _ = pick(
        {"twin": 3.0, "wrong": 1.0, "rounded": 2.0}, results, dtype=jnp.bfloat16
    )
    assert choice.best == "rounded"
    wrong = choice.table[1]
    assert wrong.seconds is None
    assert wrong.note == "wrong by 20 roundings, at most 16 allowed"


@pytest.mark.parametrize("bad", [GOOD * np.nan, GOOD[:3], {"two": GOOD, "x": GOOD}])
def test_what_cannot_be_compared_is_wrong(bad):
    choice, _ = pick({"twin": 3.0, "bad": 1.0}, {"bad": bad})
    assert choice.best == "twin"
    assert choice.table[1].note.startswith("wrong by inf")
    assert json.loads(json.dumps(choice.table[1].to_json()))["error"] is None


def test_a_coarser_twin_is_kept_and_allows_what_it_needs():
    exact = GOOD.astype(np.float64)
    results = {"twin": GOOD * np.float32(1 + 1e-3), "a": GOOD * np.float32(1 - 1e-3)}
    choice, _ = pick({"twin": 2.0, "a": 1.0}, results, exact=exact)
    assert choice.best == "a"
    choice, _ = pick({"twin": 2.0, "a": 1.0}, results)  # against the twin: 2e-3 away
    assert choice.best == "twin"


def test_a_candidate_that_fails_is_reported_and_dropped():
    def make(candidate):
        if candidate == "unbuilt":
            raise NotImplementedError("no such tile\nsecond line")

        def call():
            if candidate == "spilled":
                raise RuntimeError("out of shared memory")
            return GOOD

        return call

    choice = choose(["twin", "unbuilt", "spilled"], make)
    notes = [row.note for row in choice.table]
    assert choice.best == "twin"
    assert notes[1:] == [
        "NotImplementedError: no such tile",
        "RuntimeError: out of shared memory",
    ]
    with pytest.raises(RuntimeError, match="the plain candidate 'unbuilt' failed"):
        choose(["unbuilt"], make)


def test_nothing_to_choose_from_is_refused():
    with pytest.raises(
        ValueError, match="candidates, repeats: expected at least one of each"
    ):
        choose([], lambda _: lambda: GOOD)


TILE = Tile(16, 16)


def one_tile(_):
    return {"tile": [TILE], "backward": [TILE]}


@pytest.fixture(scope="module")
def attention():
    subject = SUBJECTS["attention"]
    return {"attention": TuningSubject(subject.function, subject.shapes, one_tile)}


def clock_of(order):
    """Seconds of each timed call in turn, every start at 0."""
    ticks = iter([tick for seconds in order for tick in (0.0, seconds)])
    return functools.partial(next, ticks)


SHAPE = (1, 7, 16, 2, jnp.float32)
QUICK = {"calls": 2, "repeats": 1, "interpret": True}


@pytest.mark.slow
def test_interpreted_kernels_are_timed_and_the_plan_takes_them(attention):
    # forward: twin, kernel; both: twin, kernel, kernel with kernel gradient
    clock = clock_of([2.0, 1.0, 5.0, 4.0, 3.0])
    calls = []
    report = {"progress": lambda *call: calls.append(call)}
    tuned = tune(*SHAPE, subjects=attention, clock=clock, **report, **QUICK)
    assert calls == [(0, 1, ""), (1, 1, "attention")]
    assert tuned.plan == Plan(attention=TILE, attention_backward=TILE)
    table = dict(tuned.table)
    assert [row.seconds for row in table["attention.forward"]] == [1.0, 0.5]
    both = {row.candidate: row for row in table["attention.both"]}
    assert both[None, None].seconds == 2.5
    assert both[TILE, TILE].error < 16
    record = json.loads(json.dumps(tuned.to_json()))
    assert Plan.from_json(record["plan"]) == tuned.plan
    assert record["problem"]["dtype"] == "float32"
    # cuDNN is a candidate too; here it cannot be had, and the table says so.
    assert both["cudnn", None].seconds is None
    assert both["cudnn", None].note


@pytest.mark.slow
def test_neither_a_kernel_that_loses_nor_a_wrong_one_is_in_the_plan(attention):
    right = attention["attention"]

    def function(problem):
        def attend(qkv, *, tile, backward, interpret):
            out = right.function(problem)(qkv)
            return out if backward is None else jax.lax.stop_gradient(out)

        return attend

    wrong = TuningSubject(function, right.shapes, right.candidates)
    # Forward twin and kernel; then both with the gradient. The wrong one never runs.
    clock = clock_of([2.0, 1.0, 3.0, 3.5, 4.0])
    tuned = tune(*SHAPE, subjects={"attention": wrong}, clock=clock, **QUICK)
    assert tuned.plan == Plan.twins()
    last = dict(tuned.table)["attention.both"][-1]
    assert last.candidate == (TILE, TILE)
    assert last.note.startswith("wrong by")


@pytest.mark.parametrize("name", KERNELS)
def test_every_kernel_is_tuned_at_the_shapes_of_a_block(name):
    problem = Problem(2, 7, 16, 2, jnp.bfloat16)
    subject = SUBJECTS[name]
    arrays = [
        jax.ShapeDtypeStruct(shape, jnp.bfloat16 if len(shape) == 3 else jnp.float32)
        for shape in subject.shapes(problem)
    ]
    run = functools.partial(subject.function(problem), tile=None, backward=None)
    out = jax.eval_shape(functools.partial(run, interpret=False), *arrays)
    columns = 48 if name == "norm_linear" else 16
    assert (out.shape, out.dtype) == ((2, 7, columns), jnp.bfloat16)
    offered = subject.candidates(problem)
    for choice in ("tile", "backward"):
        assert offered[choice]
        assert all(isinstance(tile, Tile) for tile in offered[choice])


def test_without_a_gpu_the_plan_is_twins_and_nothing_is_timed():
    tuned = tune(64, 82, 256, 8, jnp.bfloat16, clock=clock_of([]))
    assert tuned.plan == Plan.twins()
    assert tuned.table == ()


def test_what_is_timed_is_compiled_as_training_compiles(attention, monkeypatch):
    """XLA's own code has to be that which a kernel would replace."""
    assert loop.COMPILER_OPTIONS is tuning.COMPILER_OPTIONS
    options = {jax.default_backend(): {"no_such_option": True}}
    monkeypatch.setattr(tuning, "COMPILER_OPTIONS", options)
    with pytest.raises(RuntimeError, match="no_such_option"):
        tune(*SHAPE, subjects=attention, **QUICK)


def test_bad_problems_are_refused():
    with pytest.raises(ValueError, match="tokens: expected a positive integer"):
        tune(1, 0, 16, 2, jnp.float32)
    with pytest.raises(ValueError, match="subjects: expected one of"):
        tune(*SHAPE, subjects={"softmax": SUBJECTS["attention"]})
