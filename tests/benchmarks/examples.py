"""Results of a machine that is not there."""

from benchmarks._results import Results
from benchmarks._suite import BenchmarkRow

ABOUT = {
    "machine": {"name": "Some CPU, 2 cores", "backend": "cpu"},
    "versions": {"python": "3.11.7", "jax": "0.10.2"},
    "revision": "abc",
    "started": "2026-11-22T01:00:00+00:00",
    "peaks": {"float32 product GFLOP/s": 100.0},
    "load before": [0.1, 0.1, 0.1],
    "command": "python -m benchmarks",
    "seconds": 12.0,
}


def results(*rows, **about):
    return Results({**ABOUT, **about}, rows)


def row(name="a", ours=1.0, theirs=10.0, floor=0.5, *, group="group", **more):
    return BenchmarkRow(group, name, ours, "NumPy", theirs, floor, **more)
