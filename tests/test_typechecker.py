"""Annotations of the library are checked while the tests run."""

import jaxtyping
import pytest

from icltheory.regression import LinearPopulation


def test_a_call_against_an_annotation_is_refused_each_time():
    for _ in range(2):
        with pytest.raises(jaxtyping.TypeCheckError, match="isotropic"):
            LinearPopulation.isotropic("3")  # pyrefly: ignore
    assert LinearPopulation.isotropic(3).dim == 3
