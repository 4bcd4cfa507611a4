"""The list of differences is that of the declarations, no more and no less."""

from dataclasses import fields, is_dataclass
from pathlib import Path

from icltheory.bridge.tasks import (
    PROFILES,
    TASKS,
    differences_table,
    load_task,
    profile_differences,
)
from tests.bridge.tasks_data import WRITERS


def differing(one, other, path=""):
    """Paths of the fields in which two declarations differ."""
    if is_dataclass(one):
        for field in fields(one):
            name = f"{path}.{field.name}" if path else field.name
            yield from differing(
                getattr(one, field.name), getattr(other, field.name), name
            )
    elif one != other:
        yield path


def test_the_list_holds_every_difference_and_nothing_else():
    actual = {
        (name, path)
        for name, spec in TASKS.items()
        for path in differing(*(spec.recipe(profile) for profile in PROFILES))
    }
    listed = [(d.task, d.field) for d in profile_differences() if d.field]
    assert len(set(listed)) == len(listed)
    assert set(listed) == actual
    assert len(actual) > 20


def test_what_is_listed_differs_in_words_too():
    for difference in profile_differences():
        assert difference.paper != difference.authors_code
        assert all(difference[:5])


def test_the_rows_of_the_published_list():
    rows = {(d.field, d.task): (d.paper, d.authors_code) for d in profile_differences()}
    assert rows["split.keep", "rte"] == ("all 10", "the first 5 of 10")
    assert rows["split.keep", "cb"] == ("all 15", "the first 5 of 15")
    assert rows["split.keep", "copa"] == ("all 10", "the first 5 of 10")
    assert rows["denominator", "cb"] == ("n", "n-1")
    assert rows["scoring", "copa"] == ("average log likelihood", "mean logit")
    assert "'Mi'" in rows["prompt.words", "cb"][1]
    paper, code = rows["merge", "emoc"]
    assert "happy is pos" in paper
    assert "others is pos" in code
    assert "classification" in rows["prompt.query", "agnews"][0]
    assert rows["prompt.query", "rte"][1].endswith("No? '`")


def test_the_search_is_listed_apart_from_the_tasks():
    search = [d for d in profile_differences() if not d.field]
    assert {d.task for d in search} == {"all"}
    assert any("svd_lowrank" in d.authors_code for d in search)
    by_loop = {d.topic for d in search if "Cumulative" in d.here}
    assert by_loop == {
        "rank-r approximation",
        "search over rates",
        "matrix of the chosen rate on the test set",
    }
    assert all(d.here for d in search)
    assert {d.here for d in profile_differences() if d.field} == {"the profile"}


def test_the_table_has_a_line_a_record():
    table = differences_table().splitlines()
    assert len(table) == len(profile_differences()) + 2
    assert len({line.replace("\\|", "").count("|") for line in table}) == 1
    assert differences_table([]).count("\n") == 2


def test_tasks_without_a_listed_split_difference_load_alike(tmp_path):
    WRITERS["mrpc"](tmp_path)
    paper, code = (load_task("mrpc", tmp_path, profile) for profile in PROFILES)
    assert paper.demonstrations == code.demonstrations
    assert paper.validation == code.validation
    assert paper.template != code.template


def test_the_page_in_the_documentation_is_this_table():
    page = Path(__file__).parents[2] / "docs" / "reference" / "profiles.md"
    assert page.read_text().endswith(differences_table().rstrip() + "\n")
