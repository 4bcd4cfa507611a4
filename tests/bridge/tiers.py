"""Cases of one test that the quick tier takes, and those that it leaves out."""

import pytest


def quick(chosen, cases):
    """All cases as parameters; those that are not ``chosen`` are slow."""
    unknown = set(chosen) - set(cases)
    assert not unknown, unknown
    return [
        case if case in chosen else pytest.param(case, marks=pytest.mark.slow)
        for case in cases
    ]
