"""Public names: all are documented, listed and reachable."""

import importlib
import inspect
import pkgutil
import re
import typing

import pytest

import icltheory
from icltheory import _public


def public_modules():
    for module in pkgutil.walk_packages(icltheory.__path__, "icltheory."):
        if not any(part.startswith("_") for part in module.name.split(".")[1:]):
            yield module.name


def public_objects():
    seen = set()
    for name in public_modules():
        module = importlib.import_module(name)
        assert hasattr(module, "__all__"), f"{name} has no __all__"
        for symbol in module.__all__:
            value = getattr(module, symbol)
            documented = inspect.isfunction(value) or inspect.isclass(value)
            if documented and id(value) not in seen:
                seen.add(id(value))
                yield f"{value.__module__}.{symbol}", value


def test_public_names_are_documented():
    objects = list(public_objects())
    assert len(objects) > 300
    bare = [name for name, value in objects if not inspect.getdoc(value)]
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


def test_dir_lists_what_is_public():
    assert dir(icltheory) == sorted(icltheory.__all__)
    modules = [importlib.import_module(name) for name in public_modules()]
    own = [getattr(icltheory, name) for name in icltheory._PACKAGES]
    packages = [m for m in modules if m in own or hasattr(m, "__path__")]
    assert len(packages) > 30
    assert [p.__name__ for p in packages if dir(p) != sorted(p.__all__)] == []


UNREADABLE = re.compile(r"jaxtyping|jaxlib|Union\[|NoneType")


def signatures():
    """What ``help`` prints of public functions, records and their methods."""
    for name, value in public_objects():
        yield name, value
        for part, member in vars(value).items() if inspect.isclass(value) else ():
            function = getattr(member, "__func__", member)
            if inspect.isfunction(function) and not part.startswith("_"):
                yield f"{name}.{part}", getattr(value, part)


def test_signatures_are_readable():
    shown = {}
    for name, value in signatures():
        try:
            parameters = inspect.signature(value).parameters.values()
        except (TypeError, ValueError):  # a class without one, such as an alias
            continue
        # Flax adds these two to every module.
        own = [p for p in parameters if p.name not in ("parent", "name")]
        shown[name] = ", ".join(map(str, own))
    assert len(shown) > 700
    assert [name for name, text in shown.items() if UNREADABLE.search(text)] == []
    bound = shown["icltheory.bounds.generalization.generalization_bound"]
    assert "H: Float[ArrayLike, '...'], shots: Real[ArrayLike, '']" in bound
    assert "dim: 'support' | 'ambient' = 'support'" in bound
    record = shown["icltheory.regression.tasks.linear.LinearRegression"]
    assert record.startswith("input_cov: ")


def test_annotations_stay_what_they_are():
    function = icltheory.regression.predictors.ridge
    kinds = typing.get_type_hints(function)
    assert "jaxtyping" in str(kinds["X"])
    written = inspect.signature(function).parameters["X"].annotation
    assert written.kind == kinds["X"]
    assert inspect.signature(function).bind(1, 2, 3, 4).arguments["penalty"] == 4


def test_without_source_an_annotation_shows_its_value():
    exec("def bare(x: int | None): ...", scope := {})
    assert repr(_public.Written(int | None, scope["bare"], "x")) == "int | None"


def test_no_module_shares_its_name_with_a_public_name_of_its_package():
    """Else ``import a.b`` and ``from a import b`` would be two things."""
    both = []
    for name in public_modules():
        parent, _, leaf = name.rpartition(".")
        package = importlib.import_module(parent)
        value = getattr(package, leaf, None)
        if leaf in package.__all__ and not inspect.ismodule(value):
            both.append(name)
    assert both == []
