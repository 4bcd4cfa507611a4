"""Every documented example runs as written."""

import doctest
import importlib
import pkgutil

import pytest

import icltheory

MODULES = [
    module.name
    for module in pkgutil.walk_packages(icltheory.__path__, "icltheory.")
    if not module.ispkg or module.name.count(".") == 1
]


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings_run(name):
    module = importlib.import_module(name)
    result = doctest.testmod(module, optionflags=doctest.NORMALIZE_WHITESPACE)
    assert result.failed == 0, f"{result.failed} failing examples in {name}"
