"""The page of differences between the profiles has every field that differs."""

from collections import Counter
from dataclasses import fields, is_dataclass
from pathlib import Path

from icltheory.bridge.tasks import PROFILES, TASKS, load_task
from tests.bridge.tasks_data import WRITERS

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "profiles.md"


def differing(one, other):
    """Pairs of values in which two declarations differ."""
    if is_dataclass(one):
        for field in fields(one):
            yield from differing(getattr(one, field.name), getattr(other, field.name))
    elif one != other:
        yield one, other


def test_the_page_has_a_row_for_every_difference_of_a_task():
    lines = [line for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    rows = [line.replace("\\|", "").strip("| ").split(" | ") for line in lines]
    assert {len(row) for row in rows} == {6}
    listed = [row for row in rows if row[-1] == "the profile"]
    actual = {
        name: list(differing(*(spec.recipe(profile) for profile in PROFILES)))
        for name, spec in TASKS.items()
    }
    counts = Counter(row[1] for row in listed)
    assert counts == Counter({name: len(own) for name, own in actual.items()})
    assert counts.total() > 20
    written = "\n".join(lines)
    for pair in (pair for own in actual.values() for pair in own):
        for value in pair:
            if isinstance(value, str) and "{" in value:
                assert repr(value).replace("|", "\\|") in written


def test_tasks_without_a_listed_split_difference_load_alike(tmp_path):
    WRITERS["mrpc"](tmp_path)
    paper, code = (load_task("mrpc", tmp_path, profile) for profile in PROFILES)
    assert paper.demonstrations == code.demonstrations
    assert paper.validation == code.validation
    assert paper.template != code.template
