"""The commands on a user's own model and task, from the words to the numbers."""

import contextlib
import dataclasses
import io
import json
import re

import jax
import numpy as np
import pytest

from experiments import real_model
from experiments.real_model import commands
from experiments.real_model.commands import COMMANDS
from experiments.small_lm import FOLDER, declaration
from icltheory.bridge import (
    AnswerFile,
    evaluate,
    load_checkpoint,
    load_task,
    prune_model,
)
from icltheory.bridge.evaluation.result import evaluation_of
from icltheory.statistics import compare, proportion_interval
from tests.bridge.evaluation_tasks import tiny
from tests.experiments.test_help import undescribed

MODEL = "experiments/small_lm/checkpoint"
ASKED = ["--model", MODEL, "--task", "nonce"]
PRUNED = ["--prune", "0:mlp:0.9", "--prune", "3:W_Q,W_K:rank=4"]


def run(*words):
    """What a command prints."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        real_model.main([str(word) for word in words])
    return " ".join(printed.getvalue().split())


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_of_a_command_is_described(command, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    with pytest.raises(SystemExit) as stop:
        real_model.main([command, "--help"])
    page = capsys.readouterr().out
    assert not stop.value.code
    assert f"usage: python -m experiments.real_model {command} " in page
    assert undescribed(page) == []


@pytest.mark.slow
def test_the_numbers_are_those_of_the_library(tmp_path):
    file = tmp_path / "new" / "numbers.json"
    few = ["--shots", "0", "--examples", "6", "--batch-size", "4"]
    text = run("evaluate", *ASKED, *few, *PRUNED, "--level", "0.9", "--save", file)
    model = load_checkpoint(MODEL)
    task = load_task(declaration("nonce"), FOLDER / "nonce")
    places = np.linspace(0, len(task.test) - 1, 6).round().astype(int)
    task = dataclasses.replace(task, test=tuple(task.test[int(i)] for i in places))
    models = model, prune_model(model, PRUNED[1::2])
    plain = [evaluate(one, task, "test", 0, batch_size=4) for one in models]
    found = json.loads(file.read_text())
    for one, expected in zip(found["models"], plain, strict=True):
        assert one["predictions"] == expected.predictions.tolist()
        assert one["accuracy"] == expected.accuracy
        interval = proportion_interval(expected.num_correct, 6, level=0.9)
        assert one["interval"] == pytest.approx(list(interval))
    difference = compare(*(one.correct for one in plain), level=0.9)
    assert f"difference, paired: {difference}" in text
    assert f"{plain[1].num_correct} of 6" in text
    assert found["options"]["prune"] == PRUNED[1::2]
    assert "0 demonstrations (seed 0), test" in text
    assert [path.name for path in tmp_path.iterdir()] == ["new"]


def close(found, expected):
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)


@pytest.mark.slow
def test_a_search_goes_on_from_its_answers_and_says_how_to_keep_its_choice(tmp_path):
    words = ["search", *ASKED, "--shots", "0", "--examples", "6", "--batch-size", "4"]
    words += ["--layers", "-1", "--modules", "attn", "--rates", "0.9", "--budget", "4"]
    words += ["--ranks", "8", "--candidates", "0:mlp:0.5", "--level", "0.9"]
    file, answers = tmp_path / "found.json", tmp_path / "answers.sqlite"
    text = run(*words, "--answers", answers, "--save", file)
    found, asked = json.loads(file.read_text()), list(AnswerFile(answers))
    assert found["options"]["budget"] == 4 >= len(found["tried"])
    places = {"", "3:attn:0.9", "3:attn:rank=8", "0:mlp:0.5"}
    assert {line["pruned"] for line in asked} >= places <= set(found["tried"])
    names = [step["prune"] for step in found["path"]]
    assert ("to keep it" in text) == bool(names)
    assert f"test: {' '.join(names) or 'unpruned'}: " in text
    assert found["comparison"]["level"] == 0.9
    again = run(*words, "--answers", answers, "--systems", tmp_path / "systems")
    assert again == text.partition(" written to")[0]
    assert list(AnswerFile(answers)) == asked


def test_a_search_may_be_over_ranks_alone():
    words = [*ASKED, "--layers", "2", "--modules", "attn", "--rates", "--ranks", "8"]
    given = commands.read_options(commands.Search, words, "search", "")
    assert list(map(str, given.every_candidate(4))) == ["2:attn:rank=8"]


def test_what_is_exported_is_what_was_clipped(tmp_path):
    both = ["--prune", "3:mlp:0.9", "head:rank=8", "--at-least-one"]
    expected = prune_model(load_checkpoint(MODEL), ["3:mlp:0.9", "head:rank=8"])
    sizes = {}
    for more in ([], ["--factorised"]):
        folder = tmp_path / "-".join(["out", *more])
        text = run("export", "--model", MODEL, *both, "--to", folder, *more)
        again = load_checkpoint(folder)
        jax.tree.map(close, again.params, expected.params)
        assert ("in factors" in text) == bool(more)
        assert "embeddings and head were one matrix, and are two now" in text
        assert (folder / "tokenizer.json").is_file()
        sizes[bool(more)] = (folder / "model.safetensors").stat().st_size
    saved = 3 * (64 * 160 - 6 * 224) + 243 * 64 - 8 * (243 + 64)
    assert sizes[False] - sizes[True] == pytest.approx(4 * saved, rel=0.01)


# By words that follow a command with model and task, or with neither, the message.
MISTAKES = {
    "evaluate": {
        "--scoring guess": "scoring: expected one of label",
        "--shots -2": "shots: expected at least -1, got -2",
        "--shots 99": "shots: expected at most 16 for nonce",
        "--split train": "invalid choice 'train' for arg",
        "--level 2": "level: expected a value within (0, 1)",
        "--task sst3": "task: expected one of sentiment",
        "--prune mlp": "prune: intervention: expected LAYER",
        "--prune 9:mlp:0.5": "layer: expected 0 to 3, got 9",
        "--prune 3:mpl:0.5": "module: expected one of 'all', 'attn', 'mlp', 'W_Q'",
        "--prune 3:mlp:0.999": "rate: expected a rate that leaves a rank >= 1 of 64, "
        "got 0.999",
        "--save .": "save: expected a file, got the folder .",
    },
    "search": {
        "--save .": "save: expected a file, got the folder .",
        "--answers .": "answers: expected a file, got the fold",
        "--budget 1": "budget: expected at least 2, got 1",
        "--beam 0": "beam: expected at least 1, got 0",
        "--layers 4": "layers: expected -4 to 3, got 4",
        "--rates": "candidates: expected at least one, got none",
        "--rates 1": "rate: expected a number in [0, 1), got",
        "--ranks 65": "rank: expected 1 <= rank <= 64, got 65",
        "--candidates x": "candidates: intervention: expected",
    },
    "": {
        "exprt": "command: expected one of evaluate, search, export, cost",
        "evaluate": "model: expected the folder of a checkpoint or a name on the",
        f"evaluate --model {MODEL}": "task: expected the name of a task, or a table by "
        "--csv, got none",
        f"export --model {MODEL}": "to: expected a folder to write, got None",
        f"export --model {MODEL} --to nowhere": "prune: expected something to clip, "
        "got none",
        "export --model ./nowhere --to x --prune 0:mlp:0.5": "./nowhere: expected the "
        "folder of a checkpoint",
        "export --model ./nowhere --prune 0:mlp:0.5 --to tests": "to: expected a path "
        "that does not exist, got",
    },
}


@pytest.mark.parametrize(
    ("command", "line"), [(name, line) for name in MISTAKES for line in MISTAKES[name]]
)
def test_mistakes_are_one_line(command, line):
    words = [*([command, *ASKED] if command else []), *line.split()]
    message = "^" + re.escape(MISTAKES[command][line])
    with pytest.raises((ValueError, OSError), match=message) as caught:
        real_model.main(words)
    assert "\n" not in str(caught.value)


def test_a_model_whose_answers_are_all_nan_has_no_accuracy(monkeypatch, tmp_path):
    def silent(model, task, split, *_, **__):
        labels = np.array([example.label for example in task.examples(split)])
        scores = np.zeros((len(labels), len(task.labels)))
        scores[:, 0] = np.nan if model.arch.num_layers == 1 else 0
        return evaluation_of(scores, labels)

    pruned = tiny("groups", num_layers=1)
    monkeypatch.setattr(commands, "evaluate", silent)
    monkeypatch.setattr(commands, "prune_model", lambda *_, **__: pruned)
    file = tmp_path / "numbers.json"
    text = run("evaluate", *ASKED, *PRUNED[:2], "--save", file)
    assert "0:mlp:0.9: all answers are NaN, so that it has no accuracy" in text
    assert "difference, paired: none, as a model has no accuracy" in text
    found = json.loads(file.read_text())
    assert found["comparison"] is None
    assert [one["accuracy"] is None for one in found["models"]] == [False, True]
    assert [one["interval"] is None for one in found["models"]] == [False, True]


def test_the_revision_reaches_the_loader(monkeypatch):
    asked = []

    def load(name, dtype, *, revision):
        asked.append((name, dtype, revision))
        raise ImportError("no hub here")

    monkeypatch.setattr(commands, "load_checkpoint", load)
    words = ["export", "--model", "some/name", "--prune", "0:mlp:0.5", "--to", "new"]
    for more in (["--revision", "v1", "--dtype", "bfloat16"], []):
        with pytest.raises(ValueError, match="^no hub here"):
            real_model.main([*words, *more])
    assert asked == [("some/name", "bfloat16", "v1"), ("some/name", None, None)]


@pytest.mark.slow
def test_a_table_of_ones_own_is_a_task(tmp_path):
    """The one command that prunes a model and tests it on a user's own examples."""
    rows = ["review,mood"]
    rows += [f"{'good' if i % 2 else 'bad'} film {i},{'fine' if i % 2 else 'poor'}"
             for i in range(40)]  # fmt: skip
    (tmp_path / "reviews.csv").write_text("\n".join(rows) + "\n")
    words = ["evaluate", "--model", MODEL, "--csv", tmp_path / "reviews.csv"]
    words += ["--text", "review", "--label", "mood", "--prune", "3:mlp:0.5"]
    text = run(*words)
    assert "reviews by average_log_likelihood, 8 demonstrations (seed 0), test" in text
    assert " of 16 " in text
    assert "difference, paired: " in text
