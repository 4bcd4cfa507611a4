"""Numbers that no change of the library's shape may change.

Commands
    python -m tests.frozen write FILE      # stores them
    python -m tests.frozen compare FILE    # names every number that differs

They are the values that the examples of all docstrings display, with nine digits, and
the numbers that the ledger's page shows; ``tests/frozen.json`` has them as they were
before the library became smaller. ``experiments.publish`` compares the stored results.
A name that is gone is listed apart: with it the number may have moved.
"""

import argparse
import contextlib
import doctest
import importlib
import json
import math
import pkgutil
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np

import icltheory

ROOT = Path(__file__).parents[1]
# Sums may be taken in another order: float32 has seven digits.
DIGITS = 2e-5
NUMBER = re.compile(r"([\w .|/()\\]+): (-?\d[\d.]*(?:e[+-]?\d+)?)")


def plain(value: Any) -> Any:
    """Numbers and words of a value, for JSON."""
    if value is None or isinstance(value, bool | np.bool | str):
        return value if not isinstance(value, np.bool) else bool(value)
    if isinstance(value, jax.Array) and jax.dtypes.issubdtype(
        value.dtype, jax.dtypes.prng_key
    ):
        return "key"
    if isinstance(value, int | float | np.ndarray | np.number | jax.Array):
        return json.loads(json.dumps(np.asarray(value, np.float64).tolist()))
    if isinstance(value, dict):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, tuple | list):
        return [plain(one) for one in value]
    text = re.sub(r" at 0x[0-9a-f]+", "", repr(value))
    folder = re.escape(tempfile.gettempdir())
    return re.sub(rf"{folder}/tmp\w+", "FOLDER", text)


def examples() -> Iterator[tuple[str, Any]]:
    """Yields what the examples of each docstring display."""
    finder = doctest.DocTestFinder(exclude_empty=True)
    for info in pkgutil.walk_packages(icltheory.__path__, "icltheory."):
        try:
            module = importlib.import_module(info.name)
        except ImportError:  # of an extra
            continue
        for test in finder.find(module):
            if test.examples:
                yield test.name, list(displayed(test))


def displayed(test: doctest.DocTest) -> Iterator[Any]:
    """Runs the examples of one docstring and yields each value that is displayed."""
    found: list[Any] = []
    names = dict(test.globs)
    for example in test.examples:
        code = compile(example.source, test.name, "single")
        hook, sys.displayhook = sys.displayhook, found.append
        try:
            with contextlib.redirect_stdout(None):
                exec(code, names)  # noqa: S102
        except Exception as error:
            found.append(error)
        finally:
            sys.displayhook = hook
    return (plain(value) for value in found if value is not None)


def ledger() -> Iterator[tuple[str, Any]]:
    """Yields the measured numbers of each row of the ledger's page."""
    for line in (ROOT / "docs" / "reference" / "ledger.md").read_text().splitlines():
        cells = line.split(" | ")
        for name, value in NUMBER.findall(cells[-1]):
            yield f"{cells[0].strip('| ')}: {name.strip()}", float(value)


def everything() -> dict[str, dict[str, Any]]:
    """Returns all numbers by kind and name."""
    kinds = {"example": examples, "ledger": ledger}
    return {name: dict(one()) for name, one in kinds.items()}


def differences(one: Any, other: Any) -> Iterator[str]:
    """Yields the places at which two values differ by more than rounding."""
    if isinstance(one, dict) and isinstance(other, dict):
        for key in sorted({*one, *other}):
            yield from (
                f"/{key}{at}" for at in differences(one.get(key), other.get(key))
            )
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for i, pair in enumerate(zip(one, other, strict=True)):
            yield from (f"/{i}{at}" for at in differences(*pair))
    elif isinstance(one, float) and isinstance(other, float):
        same = one == other or (math.isnan(one) and math.isnan(other))
        if not same and not math.isclose(one, other, rel_tol=DIGITS, abs_tol=1e-6):
            yield f": {one:.9g} -> {other:.9g}"
    elif one != other:
        yield f": {str(one)[:60]} -> {str(other)[:60]}"


def main(argv: list[str] | None = None) -> int:
    """Writes or compares; the status is 1 if a number differs."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("verb", choices=("write", "compare"))
    parser.add_argument("file", type=Path)
    flags = parser.parse_args(argv)
    found = json.loads(json.dumps(everything()))
    if flags.verb == "write":
        flags.file.write_text(json.dumps(found, separators=(",", ":")) + "\n")
        print({kind: len(own) for kind, own in found.items()})
        return 0
    frozen, differ = json.loads(flags.file.read_text()), 0
    for kind, own in frozen.items():
        # What moved to another module has its last name still.
        last = {name.rpartition(".")[2]: name for name in found[kind]}
        for name in sorted(own):
            now = name if name in found[kind] else last.get(name.rpartition(".")[2])
            if now is None:
                print(f"gone: {kind} {name}")
                continue
            for at in differences(own[name], found[kind][now]):
                differ += 1
                print(f"{kind} {name}{at}")
    print(f"{differ} differ")
    return int(differ > 0)


if __name__ == "__main__":
    sys.exit(main())
