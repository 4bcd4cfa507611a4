"""Our logits against torch's on the stored models, as a table with a row per family.

    python -m tests.bridge.parity_table            # print it
    python -m tests.bridge.parity_table --write    # and put it into the page

The page is ``docs/reference/families.md``. Our logits are computed in float32, torch's
were in float64, both on rows of 17 tokens. ``test_parity.py`` pads them as well.
"""

import argparse
import pathlib
import re
import tempfile
from collections.abc import Iterator

import numpy as np

from tests.bridge import stored
from tests.bridge.fixture_models import FAMILIES

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "reference" / "families.md"
HEAD = "| `model_type` | tested models | largest difference | largest logit |"
ROW = r"\| `(\w+)` \| (.*) \| (\S+) \| (\S+) \|"


def rows() -> Iterator[tuple[str, list[str], float, float]]:
    """Each family, its stored models, and the largest difference on any of them."""
    for family in sorted(set(FAMILIES.values())):
        names = [name for name in FAMILIES if FAMILIES[name] == family]
        both = [errors(name) for name in names]
        yield family, names, max(e for e, _ in both), max(size for _, size in both)


def errors(name: str) -> tuple[float, float]:
    """Largest difference from torch's logits, and the largest of those."""
    ids, logits = stored.expected(name)
    with tempfile.TemporaryDirectory() as folder:
        model = stored.load(name, pathlib.Path(folder))
    found = stored.difference(model.logits(ids), logits)
    return found, float(np.nanmax(np.abs(logits)))


def table() -> str:
    """The table as Markdown."""
    lines = [HEAD, "|---|---|---|---|"]
    for family, names, error, size in rows():
        named = ", ".join(f"`{name}`" for name in names)
        lines.append(f"| `{family}` | {named} | {error:.1e} | {size:.1f} |")
    return "\n".join(lines)


def listed(text: str) -> list[tuple[str, list[str], float]]:
    """Rows of a page: family, tested models, largest difference."""
    return [
        (family, re.findall(r"`(\w+)`", names), float(error))
        for family, names, error, _ in re.findall(ROW, text)
    ]


def put(text: str, new: str) -> str:
    """The page with another table."""
    found = re.compile(re.escape(HEAD) + r"\n(\|.*\n)*")
    return found.sub(lambda _: new + "\n", text)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help="update the page")
    write, made = parser.parse_args().write, table()
    print(made)
    if write:
        PAGE.write_text(put(PAGE.read_text(), made))
