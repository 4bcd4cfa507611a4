"""Replaces the numerical libraries by stand-ins, so that help pages are fast.

A help page needs the names, types, defaults and documentation of a config, but no
number. JAX, SciPy and the libraries above them take most of the time until it is
printed, so their place is taken by objects that accept everything and compute nothing.
"""

import dataclasses
import importlib.abc
import importlib.machinery
import re
import sys
from types import ModuleType
from typing import Any

LIBRARIES = frozenset(
    [
        "diffrax",
        "equinox",
        "flax",
        "jax",
        "jaxlib",
        "jaxtyping",
        "matplotlib",
        "optimistix",
        "optax",
        "orbax",
        "scipy",
        "sklearn",
    ]
)
_OPERATORS = "add radd sub rsub mul rmul truediv rtruediv pow rpow matmul or ror neg"


class _Anything(type):
    """Metaclass whose attributes, items and unions are stand-ins too."""

    def __getattr__(cls, name: str) -> Any:
        return _named(name)

    def __getitem__(cls, _: Any) -> Any:
        return cls

    def __or__(cls, _: Any) -> Any:
        return cls

    __ror__ = __or__


class StandIn(metaclass=_Anything):
    """Object that accepts every call and operation; as a decorator it keeps classes.

    Functions that it decorates are never called, and become stand-ins.
    """

    def __init__(self, *_: Any, **__: Any):
        pass

    def __getattr__(self, name: str) -> Any:
        return _named(name)

    def __call__(self, *args: Any, **_: Any) -> Any:
        return args[0] if args and isinstance(args[0], type) else StandIn()

    def __getitem__(self, _: Any) -> Any:
        return StandIn()

    def __iter__(self) -> Any:
        return iter(())

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: Any) -> None:
        pass


for _name in _OPERATORS.split():
    setattr(StandIn, f"__{_name}__", lambda *_: StandIn())


def _named(name: str) -> Any:
    """Returns a stand-in class for a capitalised name, else a stand-in object."""
    if re.fullmatch("__.*__", name):
        raise AttributeError(name)
    return _Anything(name, (StandIn,), {}) if name[0].isupper() else StandIn()


class _Module(ModuleType):
    def __getattr__(self, name: str) -> Any:
        return _named(name)


class _Dataclass(type):
    """Metaclass of what stands for ``equinox.Module``: records keep their fields."""

    def __new__(cls, name: str, bases: Any, space: Any, **_: Any) -> Any:
        made: Any = super().__new__(cls, name, bases, space)
        return dataclasses.dataclass(eq=False)(made)


class _Record(metaclass=_Dataclass):
    pass


def _field(*, static: bool = False, converter: Any = None, **kwargs: Any) -> Any:
    return dataclasses.field(**kwargs)


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, fullname: str, path: Any, target: Any = None) -> Any:
        if fullname.partition(".")[0] in LIBRARIES:
            return importlib.machinery.ModuleSpec(fullname, self, is_package=True)
        return None

    def create_module(self, spec: Any) -> ModuleType:
        return _Module(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        if module.__name__ == "equinox":
            vars(module).update(Module=_Record, field=_field)


def only_help(command: list[str]) -> bool:
    """Whether a command line requests only the help page of an experiment."""
    module = command[command.index("-m") + 1 :] if "-m" in command[:-1] else [""]
    asked = {"-h", "--help"} & set(module[1:])
    return bool(asked) and re.fullmatch(r"experiments\.[\w.]+", module[0]) is not None


def install() -> None:
    """Makes later imports of the numerical libraries return stand-ins."""
    sys.meta_path.insert(0, _Finder())
