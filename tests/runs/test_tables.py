"""Records as JSON, columns and data frames."""

import dataclasses
import importlib.util
import json
import re

import jax.numpy as jnp
import numpy as np
import pytest

from icltheory.bridge.answers import Answer, AnswerFile
from icltheory.regression import GDBeta, LinearPopulation, LinearStep, optimum
from icltheory.runs import number, plain, to_columns, to_frame
from icltheory.statistics import Interval, compare


def needs(library):
    absent = importlib.util.find_spec(library) is None
    return pytest.param(
        library, marks=pytest.mark.skipif(absent, reason=f"{library} is not installed")
    )


@dataclasses.dataclass
class Found:
    """A result with all kinds of fields."""

    name: str
    rate: float
    scores: np.ndarray
    ends: Interval
    note: None = None


FOUND = [
    Found("a", 0.5, np.array([1, 2]), Interval(0.0, jnp.array(1.0))),
    Found("b", np.float64(0.25), np.array([3, 4]), Interval(-1.0, np.inf)),
]


def test_what_is_written_is_strict_json_and_comes_back():
    value = {1: FOUND[1], "x": (jnp.array([-np.inf, np.nan]), np.float32(0.5), True)}
    found = plain(value)
    assert found["1"]["ends"] == [-1.0, "Infinity"]
    assert found["x"] == [["-Infinity", None], 0.5, True]
    assert json.loads(json.dumps(found), parse_constant=pytest.fail) == found
    back = number(["Infinity", "-Infinity", None, 2])
    np.testing.assert_array_equal(back, [np.inf, -np.inf, np.nan, 2])


def test_each_record_is_a_row():
    columns = to_columns(FOUND)
    assert columns == {
        "name": ["a", "b"],
        "rate": [0.5, 0.25],
        "scores": [[1, 2], [3, 4]],
        "ends.low": [0.0, -1.0],
        "ends.high": [1.0, np.inf],
        "note": [None, None],
    }
    numbers = columns["rate"] + columns["ends.high"]
    assert [type(cell) for cell in numbers] == [float] * 4
    assert to_columns([]) == {}
    assert to_columns(iter(FOUND)) == columns
    assert to_columns([{"of": [FOUND[0]]}])["of"][0][0]["ends"]["high"] == 1


def test_records_of_the_library_and_its_files(tmp_path):
    right = np.array([True, False, True])
    (p_value,) = to_columns([compare(right, ~right)])["p_value"]
    assert p_value == compare(right, ~right).p_value
    task = to_columns([LinearPopulation.isotropic(1)])
    moments = ["input_cov", "task_mean", "task_cov", "noise_var", "fourth_moment"]
    assert list(task) == moments
    file = AnswerFile(tmp_path / "r.sqlite")
    place = ("test", "3:mlp:0.5")
    file.add({"task": "t"}, [Answer(*place, i, 0, np.array([i / 2])) for i in (1, 0)])
    columns = to_columns(file)
    assert (columns["example"], columns["scores"]) == ([0, 1], [[0.0], [0.5]])
    assert columns["task"] == ["t", "t"]


def test_records_of_unlike_fields_are_rows_of_one_table():
    pop = LinearPopulation.isotropic(2)
    best = [optimum(family, pop, 4) for family in (LinearStep, GDBeta)]
    columns = to_columns(best)
    assert columns["model.Gamma"][0] == best[0].model.Gamma.tolist()
    assert columns["model.beta"] == [None, best[1].model.beta.tolist()]
    assert columns["risk"] == [float(one.risk) for one in best]


@pytest.mark.parametrize("library", [needs("pandas"), needs("polars")])
def test_a_data_frame_has_the_columns(library):
    frame = to_frame(FOUND, library)
    assert type(frame).__module__.startswith(library)
    assert list(frame.columns) == list(to_columns(FOUND))
    assert frame["rate"].to_list() == [0.5, 0.25]
    rows = [{"a": 1, "b": None, "c": [1, 2]}, {"a": 2.5, "b": "x", "c": [3.5]}]
    frame = to_frame(rows, library)  # cells of several kinds
    assert frame["a"].to_list() == [1, 2.5]
    assert frame["b"].to_list()[1] == "x"
    assert list(map(list, frame["c"].to_list())) == [[1, 2], [3.5]]
    assert to_frame([], library).shape == (0, 0)


@pytest.mark.parametrize(
    ("run", "message"),
    [
        (
            lambda: plain({1, 2}),
            "value: expected what JSON can hold, got <class 'set'>",
        ),
        (lambda: number("nan"), "value: expected a number, got 'nan'"),
        (
            lambda: to_columns([1.0]),
            "records: expected dataclasses or mappings, got float",
        ),
        (
            lambda: to_frame(FOUND, "numpy"),
            "library: expected 'pandas' or 'polars', got 'numpy'",
        ),
    ],
)
def test_bad_input_is_named(run, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        run()
