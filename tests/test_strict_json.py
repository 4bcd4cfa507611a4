"""JSON with infinities as words."""

import dataclasses
import json
import re

import jax.numpy as jnp
import numpy as np
import pytest

from icltheory.strict_json import number, plain


@dataclasses.dataclass
class Pair:
    first: float
    second: object


def test_what_is_written_is_strict_json_and_comes_back():
    value = {1: Pair(np.inf, (jnp.array([-np.inf, np.nan]), np.float32(0.5), True))}
    found = plain(value)
    assert found == {
        "1": {"first": "Infinity", "second": [["-Infinity", None], 0.5, True]}
    }
    assert json.loads(json.dumps(found), parse_constant=pytest.fail) == found
    back = number(["Infinity", "-Infinity", None, 2])
    np.testing.assert_array_equal(back, [np.inf, -np.inf, np.nan, 2])


def test_bad_input_is_named():
    for run, message in (
        (
            lambda: plain({1, 2}),
            "value: expected what JSON can hold, got <class 'set'>",
        ),
        (lambda: number("nan"), "value: expected a number, got 'nan'"),
    ):
        with pytest.raises(ValueError, match="^" + re.escape(message)):
            run()
