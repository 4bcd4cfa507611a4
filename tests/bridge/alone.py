"""For programs of their own: a part of a package, without the package's imports."""

import importlib.util
import sys
import types


def alone(package):
    """Lets parts of a package be imported as they are; JAX alone takes seconds.

    The parts must need no more than themselves and the standard library or NumPy.
    """
    found = importlib.util.find_spec(package)
    bare = types.ModuleType(package)
    bare.__path__ = list(found.submodule_search_locations)
    sys.modules[package] = bare
