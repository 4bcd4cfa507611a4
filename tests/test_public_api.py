"""Public names: all are documented, listed and reachable."""

import importlib
import inspect
import pkgutil

import pytest

import icltheory


def public_modules():
    """Names of the modules that no underscore marks as private."""
    names = [m.name for m in pkgutil.walk_packages(icltheory.__path__, "icltheory.")]
    return [name for name in names if "._" not in name]


def test_public_names_are_documented():
    objects = {}
    for name in public_modules():
        module = importlib.import_module(name)
        is_package = hasattr(module, "__path__")
        assert hasattr(module, "__all__") or not is_package, f"{name} has no __all__"
        for symbol in getattr(module, "__all__", ()):
            value = getattr(module, symbol)
            if inspect.isfunction(value) or inspect.isclass(value):
                objects[id(value)] = f"{value.__module__}.{symbol}", value
    assert len(objects) > 300
    bare = [name for name, value in objects.values() if not inspect.getdoc(value)]
    assert bare == []


def test_every_package_is_reachable():
    for name in icltheory._PACKAGES:
        assert getattr(icltheory, name).__name__ == f"icltheory.{name}"
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        icltheory.nonsense  # noqa: B018


@pytest.mark.parametrize("name", icltheory._PACKAGES)
def test_every_package_says_how_stable_it_is(name):
    text = importlib.import_module(f"icltheory.{name}").__doc__ or ""
    assert text.rstrip().endswith(("Stability: stable.", "Stability: provisional."))


def test_no_module_shares_its_name_with_a_public_name_of_its_package():
    """Else ``import a.b`` and ``from a import b`` would be two things."""
    for name in public_modules():
        parent, _, leaf = name.rpartition(".")
        package = importlib.import_module(parent)
        shared = leaf in package.__all__ and not inspect.ismodule(
            getattr(package, leaf)
        )
        assert not shared, name
