"""Records as columns and data frames."""

import dataclasses
import importlib.util
import json
import re

import jax.numpy as jnp
import numpy as np
import pytest

from icltheory import frames
from icltheory.bounds.records import Assumption, Bound
from icltheory.bridge.answers import Answer, AnswerFile
from icltheory.frames import to_columns, to_dict, to_frame
from icltheory.regression import GDBeta, LinearPopulation, LinearStep, optimum
from icltheory.statistics import Estimate, Interval, compare
from icltheory.strict_json import plain


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


def test_each_of_several_records_is_a_row():
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


def test_a_record_is_a_dictionary_that_json_takes():
    found = to_dict(FOUND[0])
    assert found == {
        "name": "a",
        "rate": 0.5,
        "scores": [1, 2],
        "ends": {"low": 0.0, "high": 1.0},
        "note": None,
    }
    assert to_dict({"runs": FOUND}) == {"runs": [found, to_dict(FOUND[1])]}
    assert json.loads(json.dumps(found)) == found
    with pytest.raises(ValueError, match="record: expected a record, got list"):
        to_dict([1.0])


def test_a_bound_is_a_dictionary():
    terms = jnp.array([1.5, jnp.inf])
    bound = Bound(
        *(jnp.array(jnp.inf), terms, jnp.array([3, 3]), jnp.array([2, 2])),
        *(jnp.array(True), jnp.array(jnp.nan), jnp.array([0, 1]), jnp.array([3, 3])),
        upper=jnp.array(jnp.inf),
        largest_share=jnp.array([0.5, 0.5]),
        degenerate=jnp.array([0, 2]),
        assumptions=(Assumption("the prompts are independent draws", None),),
    )
    found = to_dict(bound)
    assert found["terms"] == [1.5, np.inf]
    assert found["vacuous"] is True
    assert found["assumptions"] == [
        {"text": "the prompts are independent draws", "holds": None}
    ]
    assert json.loads(json.dumps(plain(found)))["terms"] == [1.5, "Infinity"]


def test_one_record_is_a_row_for_each_entry_of_its_arrays():
    estimate = Estimate.of(np.array([[1.0, 2.0, 3.0], [3.0, 2.0, 7.0]]))
    assert to_columns(estimate) == {
        "mean": [2.0, 2.0, 5.0],
        "standard_error": [1.0, 0.0, 2.0],
        "dof": [1, 1, 1],
    }
    best = optimum(LinearStep, LinearPopulation.isotropic(2), 3)
    columns = to_columns(best.model)
    np.testing.assert_allclose(columns["Gamma"], [[0.5, 0], [0, 0.5]], atol=1e-12)
    assert to_columns({"rates": (0, 0.5), "name": "x"})["name"] == ["x", "x"]
    assert to_columns({"name": "x", "value": 2}) == {"name": ["x"], "value": [2]}


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


@pytest.mark.parametrize("library", [needs("pandas"), needs("polars")])
def test_a_data_frame_has_the_columns(library):
    frame = to_frame(FOUND, library)
    assert type(frame).__module__.startswith(library)
    assert list(frame.columns) == list(to_columns(FOUND))
    assert frame["rate"].to_list() == [0.5, 0.25]
    assert list(map(list, frame["scores"].to_list())) == [[1, 2], [3, 4]]
    assert to_frame({"rate": [0, 0.5]}, library).shape == (2, 1)


@pytest.mark.parametrize("library", [needs("pandas"), needs("polars")])
def test_cells_of_several_kinds_make_a_data_frame(library):
    rows = [{"a": 1, "b": None, "c": [1, 2]}, {"a": 2.5, "b": "x", "c": [3.5]}]
    frame = to_frame(rows, library)
    assert frame["a"].to_list() == [1, 2.5]
    assert frame["b"].to_list()[1] == "x"
    assert list(map(list, frame["c"].to_list())) == [[1, 2], [3.5]]
    ends = to_frame([{"low": -np.inf}, {"low": np.nan}], library)["low"].to_list()
    assert ends[0] == -np.inf
    assert np.isnan(ends[1])
    assert to_frame([], library).shape == (0, 0)


def test_records_of_unlike_fields_are_rows_of_one_table():
    pop = LinearPopulation.isotropic(2)
    best = [optimum(family, pop, 4) for family in (LinearStep, GDBeta)]
    columns = to_columns(best)
    assert columns["model.Gamma"][0] == best[0].model.Gamma.tolist()
    assert columns["model.beta"] == [None, best[1].model.beta.tolist()]
    assert columns["risk"] == [float(one.risk) for one in best]


@pytest.mark.parametrize(
    ("records", "message"),
    [
        (3, "records: expected records, got int"),
        ([1.0], "records: expected dataclasses or mappings, got float"),
        (
            {"a": np.ones(2), "b": [1, 2, 3]},
            "records: expected arrays of one leading size, or a list of records, "
            "got a 2, b 3",
        ),
    ],
)
def test_what_is_no_table_is_refused(records, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        to_columns(records)


def test_a_library_that_is_not_installed_is_said_in_one_line(monkeypatch):
    monkeypatch.setattr(frames.importlib.util, "find_spec", lambda name: None)
    for library, names in ((None, "pandas or polars"), ("polars", "polars")):
        expected = f"^library: expected {names} to be installed$"
        with pytest.raises(ValueError, match=expected):
            to_frame(FOUND, library)
    with pytest.raises(ValueError, match="library: expected one of None, 'pandas'"):
        to_frame(FOUND, "numpy")
