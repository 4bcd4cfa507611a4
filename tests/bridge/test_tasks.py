"""Splits, counts and prompts of the seven tasks, in both profiles, pinned."""

from collections import Counter
from dataclasses import fields, is_dataclass
from pathlib import Path

import numpy as np
import pytest

from icltheory.bridge.tasks import PROFILES, TASKS, load_task
from tests.bridge.tasks_data import WRITERS, copa_rows, lines, shared

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "profiles.md"
# As the scripts have them: seed, classes in turn, place of the demonstrations and of
# the validation rows in the list of each class, demonstrations that reach the prompt.
SCRIPTS = {
    "sst2": (49, (1, 0), (4000, 4005), (0, 4000), 10),
    "agnews": (42, (0, 1, 2, 3), (2000, 2002), (0, 2000), 8),
    "emoc": (72, (1, 0), (2500, 2505), (0, 2500), 10),
    "mrpc": (42, (1, 0), (200, 205), (0, 0), 10),
    "rte": (66, (0, 1), (200, 205), (0, 200), 5),
    "cb": (66, (0, 2, 1), (0, 5), (5, 205), 5),
    "copa": (66, (1, 0), (100, 105), (0, 100), 5),
}
MERGED = {"paper": (0, 1, 0, 0), "authors_code": (1, 0, 0, 0)}
LESS = ("classification", "label_token", "n-1")
SCORED = {(name, "authors_code"): LESS for name in ("mrpc", "rte", "cb")}
SCORED["copa", "paper"] = ("choice", "average_log_likelihood", "n")
SCORED["copa", "authors_code"] = ("choice", "mean_logit", "n")
SHOWN = {"paper": {"rte": 10, "cb": 15, "copa": 10}, "authors_code": {}}


def script_split(name, labels):
    """Rows of demonstrations and validation, by the sampling of the scripts."""
    seed, order, (first, last), (start, stop), shown = SCRIPTS[name]
    shuffled = np.random.default_rng(seed).permutation(len(labels))
    by_class = [[int(i) for i in shuffled if labels[i] == c] for c in order]
    demonstrations = []
    for turn in range(first, last):
        for rows in by_class:
            demonstrations.append(rows[turn])
    validation = []
    for rows in by_class:
        validation += rows[start:stop]
    return demonstrations, validation, shown


def indices(examples):
    return [example.index for example in examples]


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    made = {}
    for name, write in WRITERS.items():
        folder = tmp_path_factory.mktemp(name)
        made[name] = (folder, write(folder))
    return made


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("name", TASKS)
def test_splits_are_those_of_the_scripts_but_where_the_paper_says_otherwise(
    name, profile, folders
):
    folder, labels = folders[name]
    if name == "emoc":
        merged = MERGED[profile]
        labels = {part: [merged[c] for c in own] for part, own in labels.items()}
    train = labels["train"]
    task = load_task(name, folder, profile)
    drawn, validation, shown = script_split(name, train)
    shown = SHOWN[profile].get(name, shown)
    assert indices(task.demonstrations) == drawn[:shown]
    if name == "mrpc":
        assert [e.label for e in task.validation] == labels["validation"]
    elif name == "rte" and profile == "paper":
        rest = set(range(len(train))) - set(drawn)
        assert sorted(indices(task.validation)) == sorted(rest)
    else:
        assert indices(task.validation) == validation
    for example in (*task.demonstrations, *task.validation):
        if name != "mrpc" or example in task.demonstrations:
            assert example.label == train[example.index]
    if name != "sst2":  # the others have a file of test examples
        tested = labels["test" if "test" in labels else "validation"]
        assert [example.label for example in task.test] == tested
        assert indices(task.test) == list(range(len(tested)))
    usual = ("classification", "label_token", "n")
    scored = (task.kind, task.scoring, task.denominator)
    assert scored == SCORED.get((name, profile), usual)


def test_the_test_set_of_sst2_is_what_the_training_rows_leave(folders):
    task = load_task("sst2", folders["sst2"][0])
    parts = [*map(indices, (task.demonstrations, task.validation, task.test))]
    assert [len(part) for part in parts] == [10, 8000, 33]
    assert sorted(sum(parts, [])) == list(range(8043))
    assert [e.label for e in task.test] == [1] * 26 + [0] * 7


def test_another_question_seed_is_another_draw_and_the_same_one_again(folders):
    folder = folders["rte"][0]
    drawn = [load_task("rte", folder, question_seed=seed) for seed in (0, 1, 2, 1)]
    shown = [indices(task.demonstrations) for task in drawn]
    assert shown[1] == shown[3]
    assert len({tuple(rows) for rows in shown}) == 3
    assert drawn[0].validation != drawn[1].validation
    assert drawn[0].test == drawn[1].test
    assert drawn[1].class_counts("demonstrations") == (5, 5)


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize(
    "name", [pytest.param("sst2", marks=pytest.mark.slow), "mrpc", "rte", "cb", "copa"]
)
def test_other_demonstrations_stand_before_the_same_questions(folders, name, profile):
    """Where every row is a question, some are reserved for all draws alike."""
    first, other, again, third = (
        load_task(name, folders[name][0], profile, demonstration_seed=seed, reserved=2)
        for seed in (0, 1, 1, 2)
    )
    assert other == again
    shown = [tuple(sorted(indices(t.demonstrations))) for t in (first, other, third)]
    assert len(set(shown)) == 3
    split = TASKS[name].recipe(profile).split
    for task in (other, third):
        assert (task.validation, task.test) == (first.validation, first.test)
        counts = task.class_counts("demonstrations")
        assert counts == first.class_counts("demonstrations")
        asked = task.validation if split.validation != "validation" else ()
        asked += task.test if split.test == "rest" else ()
        assert not set(indices(asked)) & set(indices(task.demonstrations))


def test_reserved_rows_leave_the_questions_and_nothing_else(folders):
    folder = folders["rte"][0]
    plain, kept = (load_task("rte", folder, reserved=n) for n in (0, 3))
    assert kept.demonstrations == plain.demonstrations
    assert set(indices(kept.validation)) < set(indices(plain.validation))
    assert len(plain.validation) - len(kept.validation) == 2 * 3
    with pytest.raises(ValueError, match="demonstration_seed: expected more than 5"):
        load_task("rte", folder, demonstration_seed=1)


TEXT = " a fine film "
FIELDS = {
    "sst2": {"text": TEXT},
    "agnews": {"text": TEXT},
    "emoc": {"text": TEXT},
    "mrpc": {"sentence1": "A .", "sentence2": "B . "},
    "rte": {"premise": "P.", "hypothesis": "H"},
    "cb": {"premise": "P.", "hypothesis": "H"},
    "copa": {"premise": "P.", "question": "cause", "choice1": "X.", "choice2": "Y."},
}
YES_NO = "P. Does this mean that H is true? select Yes or No?"
# Demonstration of label 1, query, options and, where it is another one, the query
# without demonstrations.
PROMPTS = {
    ("sst2", "paper"): (
        "text: a fine film sentiment: pos\n",
        "text: a fine film sentiment:",
        (" neg", " pos"),
    ),
    ("sst2", "authors_code"): (
        "text:  a fine film \n sentiment : pos \n",
        "text: a fine film\n sentiment :",
        (" neg", " pos"),
        "Consider the following text: a fine film. Is this text sentiment pos or neg. "
        "The sentiment is",
    ),
    ("agnews", "paper"): (
        "text: a fine film classification: sports\n",
        "text: a fine film classification:",
        (" world", " sports", " business", " science"),
    ),
    ("agnews", "authors_code"): (
        "text:  a fine film \n sentiment : sports \n",
        "text: a fine film\n sentiment :",
        (" world", " sports", " business", " science"),
        "Consider the following text: a fine film. Is this text sentiment world or "
        "sports or business or science? The sentiment is",
    ),
    ("mrpc", "paper"): (
        "sentence1: A . sentence2: B . label : true\n",
        "sentence1: A . sentence2: B . label :",
        (" false", " true"),
    ),
    ("mrpc", "authors_code"): (
        "sentence1: A . \n sentence2: B . \n label : true \n",
        "sentence1: A . \n sentence2: B .\n label :",
        (" false", " true"),
        "Consider the following text: sentence1: A . \n sentence2: B .. Are these two "
        "sentences equal or unequal. The label is",
    ),
    ("rte", "paper"): (YES_NO + " No\n", YES_NO, (" Yes", " No")),
    ("rte", "authors_code"): (YES_NO + " No\n", YES_NO + " ", (" Yes", " No")),
    ("cb", "paper"): (
        "Suppose P. Can we infer that H? Yes, No, or Maybe? No\n",
        "Suppose P. Can we infer that H? Yes, No, or Maybe?",
        (" Yes", " No", " Maybe"),
    ),
    ("cb", "authors_code"): (
        "Suppose P. Can we infer that 'H'? Yes, No, or Maybe? No\n",
        "Suppose P. Can we infer that 'H'? Yes, or No, or Mi? ",
        (" Yes", " No", " Maybe"),
    ),
    ("copa", "paper"): ("P.\ncause\nY.\n", "P.\ncause\n", ("X.", "Y.")),
    ("copa", "authors_code"): ("P.\ncause\nY.\n", "P.\ncause\n", ("X.\n", "Y.\n")),
}
for _profile in PROFILES:
    PROMPTS["emoc", _profile] = PROMPTS["sst2", _profile]


@pytest.mark.statement("Yao: Table 1")
@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("name", TASKS)
def test_prompts_are_pinned(name, profile, folders):
    task = load_task(name, folders[name][0], profile)
    example = task.test[0]._replace(fields=FIELDS[name], label=1)
    demonstration, query, options, *zero_shot = PROMPTS[name, profile]
    assert task.with_demonstrations([example]).prefix() == demonstration
    assert task.query(example) == query
    assert task.query(example, 3) == query
    assert task.query(example, 0) == (zero_shot or [query])[0]
    assert task.options(example) == options
    assert task.prefix(0) == ""
    assert task.prefix() == task.prefix(len(task.demonstrations))
    assert task.prefix().startswith(task.prefix(3))


def test_the_third_word_of_cb_is_shown_short_and_scored_long(folders):
    paper, code = (load_task("cb", folders["cb"][0], p) for p in PROFILES)
    neutral = paper.demonstrations[1]
    assert neutral.label == 2
    assert paper.with_demonstrations([neutral]).prefix().endswith("or Maybe? Maybe\n")
    assert code.with_demonstrations([neutral]).prefix().endswith("or Maybe? Mi\n")
    assert paper.labels == code.labels == ("Yes", "No", "Maybe")


def test_copa_from_its_xml_is_copa_from_jsonl(tmp_path, folders):
    task = load_task("copa", folders["copa"][0])
    whole = copa_rows([i % 2 for i in range(500)])
    items = [
        f'<item id="{i}" asks-for="{row["question"]}" '
        f'most-plausible-alternative="{row["label"] + 1}">\n<p>{row["premise"]}</p>'
        f"<a1>{row['choice1']}</a1>\n<a2>{row['choice2'].replace('&', '&amp;')}</a2>"
        "</item>"
        for i, row in enumerate(whole)
    ]
    lines(tmp_path / "copa-dev.xml", ["<copa-corpus>", *items, "</copa-corpus>"])
    read = load_task("copa", tmp_path)
    assert len(read.test) == 100
    assert read.test[0].fields["premise"] == "P 400."
    assert read.test[0].fields["choice2"] == "B & 400."
    assert [e.label for e in read.test] == [i % 2 for i in range(100)]
    assert set(read.test[0].fields) == set(task.test[0].fields)


# Demonstrations, validation, test; rows of the first demonstrations; test labels.
REAL = {
    "sst2": [(10, 8000, 59339, (3685, 54540, 23987), (25775, 33564))] * 2,
    "agnews": [(8, 8000, 7600, (6232, 3345, 5463), (1900,) * 4)] * 2,
    "emoc": [
        (10, 5000, 5509, (10217, 10827, 28902), (5225, 284)),
        (10, 5000, 5509, (27460, 4288, 17859), (832, 4677)),
    ],
    "mrpc": [(10, 408, 1725, (2031, 2580, 1248), (578, 1147))] * 2,
    "rte": [
        (10, 2480, 277, (846, 580, 132), (146, 131)),
        (5, 400, 277, (846, 580, 132), (146, 131)),
    ],
    "cb": [(n, 235, 56, (3, 95, 133), (23, 28, 5)) for n in (15, 5)],
    "copa": [(n, 200, 100, (218, 157, 253), (55, 45)) for n in (10, 5)],
}


@pytest.mark.slow
@pytest.mark.parametrize("name", REAL)
def test_the_real_data_sets(name):
    for profile, expected in zip(PROFILES, REAL[name], strict=True):
        task = load_task(name, shared(name), profile)
        parts = (task.demonstrations, task.validation, task.test)
        first = tuple(indices(task.demonstrations)[:3])
        counts = task.class_counts("test")
        assert (*map(len, parts), first, counts) == expected


def test_the_real_xml_of_copa_agrees_with_its_jsonl(tmp_path):
    folder = shared("copa")
    (tmp_path / "copa-dev.xml").write_bytes((folder / "copa-dev.xml").read_bytes())
    read, task = load_task("copa", tmp_path), load_task("copa", folder)
    for one, other in zip(read.test, task.test, strict=True):
        assert (one.label, one.index) == (other.label, other.index)
    assert indices(read.validation) == indices(task.validation)


# --- the page of differences between the profiles


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
    actual = {
        name: list(differing(*(spec.recipe(profile) for profile in PROFILES)))
        for name, spec in TASKS.items()
    }
    counts = Counter(row[1] for row in rows if row[-1] == "the profile")
    assert counts == Counter({name: len(own) for name, own in actual.items()})
    assert counts.total() > 20
    written = "\n".join(lines)
    for value in (v for own in actual.values() for pair in own for v in pair):
        if isinstance(value, str) and "{" in value:
            assert repr(value).replace("|", "\\|") in written
