"""A failing identity test names its statement and prints both numbers."""

import numpy as np

from tests.identities import failures

NODE = (
    "tests/identities/test_yao_theorem2.py::test_theorem_2_corrected_equals_its_dense"
)


def test_the_statement_the_record_and_the_variables_are_told():
    values = {
        "found": np.float64(0.1) + 0.2,
        "expected": np.array([0.3, 1.0]),
        "H": np.zeros((64, 4)),
        "name": "exact",
        "flag": True,
        "stack": object(),
        "ragged": [[1], [1, 2]],
    }
    text = failures.describe(f"{NODE}_evaluation", [("relative error", 2e-3)], values)
    first, *rest = text.splitlines()
    assert first.startswith("Yao et al. 2024")
    assert "Theorem 2" in first
    assert rest == [
        "measured: relative error = 0.002",
        "found = 0.30000000000000004",
        "expected = [0.3 1. ]",
    ]


def test_a_test_of_no_statement_has_numbers_only():
    assert failures.describe("tests/test_x.py::test_y", [], {"k": 3}) == "k = 3"
