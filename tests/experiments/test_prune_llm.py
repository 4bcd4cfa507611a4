"""Pruning a language model end to end: runs, kills, rebuilt tables, mistakes."""

import dataclasses
import json
import random
import shutil
import signal
import time

import jax
import numpy as np
import pytest

from experiments import prune_llm, shots
from experiments._frame.run import Run
from experiments.prune_llm import figures
from experiments.prune_llm import study as studies
from experiments.prune_llm import subject as subjects
from experiments.prune_llm.findings import findings
from experiments.prune_llm.study import ANSWERS, Study
from experiments.prune_llm.subject import TaskDraw
from experiments.prune_llm.tables import algorithm1_rows, panel, races, replicates
from experiments.small_lm import checkpoint, tasks
from experiments.small_lm.config import Config as SmallConfig
from experiments.small_lm.model import start
from icltheory.bridge.answer_cache import AnswerCache, TaskFacts
from icltheory.bridge.evaluation import GridChunk
from icltheory.bridge.spectra import ConditionNumber
from tests import processes

SMALL = """
    --tasks sentiment --modules mlp --rates 0 0.5 0.9 0.99 --shots -1 2 --examples 12
    --demonstration-seeds 0 1 --orders 0 --batch-size 4 --naive-examples 2 --arms
"""
# Two numbers of shots, two layers, twelve examples, three rates: 0.99 leaves no rank.
GRID = 2 * 2 * 3 * 12
SEARCHES = 3 * 12  # of the second draw


@pytest.fixture(scope="module")
def toy(tmp_path_factory):
    """A model that has learned nothing, and its tasks."""
    folder = tmp_path_factory.mktemp("toy")
    sizes = {"width": 16, "num_layers": 2, "num_heads": 2, "num_kv_heads": 2}
    config = SmallConfig(**sizes, mlp_width=24)
    params = jax.device_get(jax.jit(start, static_argnums=0)(config, jax.random.key(0)))
    wild = jax.tree.map(lambda leaf: 3 * leaf if leaf.ndim == 2 else leaf, params)
    checkpoint.save(config, wild, folder / "checkpoint")
    shutil.copytree(tasks.FOLDER, folder / "tasks")  # what its recipe writes
    return folder


def arguments(toy, output, *more):
    where = ["--checkpoint", f"{toy}/checkpoint", "--task-folder", f"{toy}/tasks"]
    return [*where, *SMALL.split(), *more, "--output", str(output)]


def program(args):
    return processes.program("prune_llm", args)


def finish(process):
    return processes.finish(process, timeout=900)


def run_as_alone(args):
    """In this process, with the precision of a program of its own."""
    with jax.enable_x64(False):
        return prune_llm.main(args)


def folder_in(output):
    (folder,) = (output / "prune_llm").iterdir()
    return folder


def result_of(folder):
    return json.loads((folder / "result.json").read_text(), parse_constant=pytest.fail)


def answers_in(folder):
    return (folder / ANSWERS).read_bytes().split(b"\n")[1:-1]


@pytest.fixture(scope="module")
def whole(toy, tmp_path_factory):
    """A run that nothing stopped."""
    output = tmp_path_factory.mktemp("runs")
    run_as_alone(arguments(toy, output))
    return folder_in(output)


def expected_answers(result):
    tested = sum(12 * (2 if r["rate"] else 1) for r in result["all draws and orders"])
    return GRID + SEARCHES + tested


@pytest.mark.slow
def test_a_run_writes_everything_it_promises(whole):
    result = result_of(whole)
    pictures = {path.name for path in whole.glob("*.png")}
    assert pictures == {
        "figure1_layers.png",
        "figure2_shots_sentiment.png",
        "figure3_condition_numbers.png",
        "figure4_algorithm1.png",
        "figure_theory.png",
        "search_cost.png",
    }
    assert len(answers_in(whole)) == result["answers"] == expected_answers(result)
    assert result["answered now"] == result["answers"]
    grid = result["grid"]["sentiment"]
    assert (
        np.isnan(np.array(grid["accuracy"]["16"]["mlp"], float)).tolist()
        == [[False, False, False, True]] * 2
    )
    assert set(grid["accuracy"]) == {"16", "2"}
    assert grid["majority"] == 0.5
    assert [row["seed"] for row in result["all draws and orders"]] == [0, 1]
    (row,) = result["algorithm1"]
    assert row["validation_scores"][0] == row["validation_before"]
    assert row["rates"] == [0, 0.5, 0.9]
    assert "0.99 leaves rank 0 of 16" in " ".join(result["findings"])
    assert result["replicates"][0]["num"] == 2
    assert result["races"][0]["races"] == result["races"][0]["same choice"]
    verdicts = {check["name"]: check["passed"] for check in result["checks"]}
    for name, passed in verdicts.items():
        # A model that knows nothing does not learn from its demonstrations.
        assert passed or "least gain" in name, name
    assert sum("rate 0" in name for name in verdicts) == 3


@pytest.mark.slow
def test_tables_and_figures_are_rebuilt_without_the_model(whole):
    before, answers = result_of(whole), (whole / ANSWERS).read_bytes()
    for path in whole.glob("*.png"):
        path.unlink()
    again = prune_llm.main(["--rebuild", str(whole)])
    assert len(list(whole.glob("*.png"))) == 6
    assert (whole / ANSWERS).read_bytes() == answers
    assert again == {name: v for name, v in before.items() if name != "answered now"}
    (whole / "result.json").write_text(json.dumps(before))


@pytest.mark.slow
def test_killed_and_resumed_it_makes_the_same_table_and_asks_nothing_twice(
    toy, whole, tmp_path
):
    victim = program(arguments(toy, tmp_path))
    stop_after = random.SystemRandom().randint(1, GRID)
    deadline, found = time.monotonic() + 800, []
    while not found or found[0].read_bytes().count(b"\n") <= stop_after:
        assert victim.poll() is None, finish(victim)
        assert time.monotonic() < deadline
        found = list(tmp_path.glob(f"prune_llm/*/{ANSWERS}"))
        time.sleep(0.002)
    victim.send_signal(signal.SIGKILL)
    finish(victim)
    folder = folder_in(tmp_path)
    assert not (folder / "result.json").exists()
    recorded = answers_in(folder)
    with pytest.raises(ValueError, match="rebuild: expected a complete run"):
        prune_llm.main(["--rebuild", str(folder)])

    run_as_alone(["--resume", str(folder)])
    uninterrupted, result = result_of(whole), result_of(folder)
    lines = answers_in(folder)
    assert lines[: len(recorded)] == recorded, f"killed after {stop_after}"
    assert result["answered now"] == len(lines) - len(recorded)
    assert len(lines) == expected_answers(uninterrupted)

    def key(line):
        value = json.loads(line)
        del value["scores"]
        return json.dumps(value, sort_keys=True)

    assert sorted(map(key, lines)) == sorted(map(key, answers_in(whole)))
    for name in ("algorithm1", "all draws and orders", "grid", "races", "findings"):
        assert result[name] == uninterrupted[name], name

    # Once more: nothing is left to ask.
    run_as_alone(["--resume", str(folder)])
    assert result_of(folder)["answered now"] == 0
    assert answers_in(folder) == lines


def test_a_task_can_be_a_file(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(f"""
folder: {tasks.FOLDER / "topic"}
fields: {{text: "{{text}}"}}
labels: {{label: [0, 1, 2, 3]}}
prompt:
  demonstration: "{{text}} : {{label}}\\n"
  query: "{{text}} :"
  words: [world, sports, business, science]
split: {{per_class: 4}}
""")
    config = dataclasses.replace(shots.PRESETS["tiny"], examples=4)
    filed = dataclasses.replace(config, tasks=(str(path),))
    assert filed.task_names == ("mine",)
    named = dataclasses.replace(config, tasks=("topic",), scoring="pmi")
    of_name, of_file = (subjects.load(c.subject()) for c in (named, filed))
    assert {case.task for case in of_file.tasks} == {"mine"}
    for case, task in of_file.tasks.items():
        other = of_name.tasks[case._replace(task="topic")]
        assert (task.scoring, other.scoring) == ("label_token", "pmi")
        changes = {"name": "topic", "sources": other.sources, "scoring": "pmi"}
        assert dataclasses.replace(task, **changes) == other


@pytest.mark.slow
def test_other_weights_are_no_continuation(toy, whole):
    stored = json.loads((whole / "config.json").read_text())["config"]
    config = dataclasses.replace(
        prune_llm.PRESETS["tiny"],
        **{k: tuple(v) if isinstance(v, list) else v for k, v in stored.items()},
    )
    other = dataclasses.replace(subjects.load(config), digest="other")
    with pytest.raises(ValueError, match="config.weights is"):
        studies.begin(config, other, Run(whole))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (["--rates", "0", "1"], "rates: expected numbers in [0, 1), got 1"),
        (["--rates", "0.5"], "rates: expected ascending rates that begin"),
        (
            ["--rates", "0", "0.99"],
            "rate: expected a rate that leaves a rank >= 1 of 16",
        ),
        (["--top-k", "0"], "top_k: expected at least 1, got 0"),
        (["--top-k", "3"], "k: expected at most 2 layers, got 3"),
        (["--aggregate", "sum"], "aggregate"),
        (["--modules", "mpl"], "module: expected one of 'all', 'attn', 'mlp'"),
        (
            ["--tasks", "sst3"],
            "tasks: expected some of sentiment, topic, nonce, nonce_topic, sst2",
        ),
        (["--task", "no.yaml"], "no.yaml: no such declaration file"),
        (["--task", "a/x.yaml", "b/x.yaml"], "tasks: expected files of distinct"),
        (["--scoring", "f1"], "scoring: expected one of 'label_token'"),
        (["--tasks", "rte"], "no such folder of files for rte"),
        (["--shots", "17"], "shots: expected at most 16 for sentiment, got 17"),
        (["--shots", "-2"], "shots: expected numbers >= -1, got -2"),
        (["--layers", "2"], "layers: expected -2 to 1, got 2"),
        (["--orders"], "orders"),
        (["--level", "1"], "level: expected a value within (0, 1), got 1"),
        (["--examples", "-1"], "examples: expected at least 0, got -1"),
        (["--arms", "random", "random"], "arms: expected no duplicates"),
        (
            ["--arms", "activation", "--calibration", "nowhere.txt"],
            "calibration: expected a text file, got nowhere.txt",
        ),
        (
            ["--checkpoint", "./nowhere"],
            "./nowhere: expected the folder of",
        ),
        (["--profile", "mine"], "profile"),
        (
            ["--preset", "large"],
            "preset: expected one of tiny, gptj, llama2",
        ),
        (["--rebuild", "nowhere"], "rebuild: expected a run folder"),
    ],
)
def test_mistakes_are_found_before_anything_is_written(toy, change, message, tmp_path):
    with pytest.raises((ValueError, OSError)) as caught:
        prune_llm.main(arguments(toy, tmp_path / "runs", *change))
    assert message in " ".join(str(caught.value).split())
    assert not (tmp_path / "runs").exists()


def test_a_broken_line_is_named_in_one_line_with_status_2(toy, tmp_path, capsys):
    folder = tmp_path / "tasks" / "sentiment"
    folder.mkdir(parents=True)
    for path in (toy / "tasks" / "sentiment").iterdir():
        (folder / path.name).write_text(path.read_text())
    lines = (folder / "test.jsonl").read_text().splitlines()
    lines[6] = lines[6][:-4]
    (folder / "test.jsonl").write_text("\n".join(lines) + "\n")
    more = ("--task-folder", str(tmp_path / "tasks"))
    args = arguments(toy, tmp_path / "runs", *more)
    assert processes.status("prune_llm", args) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "test.jsonl:7: " in line
    assert not (tmp_path / "runs").exists()


def made_up(gain, num_layers=3):
    """A study of answers that are drawn, where the last layer's MLP gains at 0.5."""
    config = prune_llm.Config(
        checkpoint="made up",
        tasks=("toy",),
        task_folder="",
        rates=(0.0, 0.5, 0.9),
        top_k=1,
        shots=(4,),
    )
    size, rng = 400, np.random.default_rng(0)
    facts = TaskFacts(
        "toy",
        "paper",
        "label_token",
        "n",
        ("a", "b"),
        {"validation": size, "test": size},
        "",
    )
    labels = np.arange(size) % 2
    answers = AnswerCache(facts)
    for split in ("validation", "test"):
        plain = rng.random(size) < 0.6
        for layer in range(num_layers):
            for module in config.modules:
                right = np.stack([plain, plain, rng.random(size) < 0.5])
                if (layer, module) == (num_layers - 1, "mlp"):
                    right[1] = plain ^ (rng.random(size) < abs(gain))
                    right[1] |= plain if gain > 0 else False
                scores = np.eye(2)[np.where(right, labels, 1 - labels)]
                chunk = GridChunk(layer, module, np.arange(size), scores)
                answers.add(split, config.rates, [chunk], labels)
    more = (1.0, 1.0, (16, 16), "float32", 1e6, True, np.empty(0))
    conditions = tuple(
        ConditionNumber(layer, module, "W", 10.0 + layer, *more)
        for layer in range(num_layers)
        for module in config.modules
    )
    answers = {TaskDraw("toy", 4, 0, 0): answers}
    return Study(config, "llama", num_layers, conditions, answers, {}, ())


def said(study):
    rows = algorithm1_rows(study, study.judged_cases)
    raced = [races(study, row) for row in rows]
    return rows, findings(study, rows, replicates(study, rows), raced, None)


def test_a_gain_is_reported_as_one_and_no_gain_as_none():
    rows, sentences = said(made_up(gain=0.3))
    assert [(r.module, r.result.layer, r.result.rate) for r in rows] == [
        ("mlp", 2, 0.5),
        ("attn", 2, 0.0),
    ]
    assert rows[0].verdict(0.95) == "better"
    assert rows[1].verdict(0.95) == "not pruned"
    assert rows[0].holm == rows[0].result.p_value  # nothing else was tested
    assert sentences[0].startswith("Pruning helped beyond chance")
    assert "of 12 (layer, module, rate) 1 are better" in " ".join(sentences)

    rows, sentences = said(made_up(gain=-0.3))
    assert {r.result.rate for r in rows} == {0.0}
    assert sentences[0].startswith("Pruning did not help beyond chance")
    assert sentences[1].startswith("No rate improved")


def test_a_race_over_the_grid_is_told_beside_it():
    study = made_up(gain=0.3)
    row = algorithm1_rows(study, study.judged_cases)[0]
    found = races(study, row)
    assert found["full_evaluations"] == 3 * 400
    assert found["same choice"] == found["races"]
    assert 0.2 < found["saved"] < 0.9
    racing = dataclasses.replace(study.config, race=True)
    rows, sentences = said(dataclasses.replace(study, config=racing))
    assert [r.result.rate for r in rows] == [0.5, 0.0]
    assert rows[0].result.race is not None
    assert rows[0].result.evaluations < 3 * 400
    assert "judged on halves" not in " ".join(sentences)


def test_the_theory_figure_shows_the_rows_beside_the_accuracy():
    study = made_up(gain=0.3)
    rng = np.random.default_rng(0)
    rows = [
        {
            "layer": layer,
            "rate": rate,
            **{name: rng.random() for name in figures.THEORY},
        }
        for layer in study.layers
        for rate in study.config.rates
    ]
    measured = {"case": study.main_case("toy")._asdict(), "module": "mlp", "rows": rows}
    axes = figures._theory(study, measured).axes
    *quantities, accuracy = (
        {line.get_label(): list(line.get_ydata()) for line in own.get_lines()}
        for own in axes
    )
    for name, drawn in zip(figures.THEORY, quantities, strict=True):
        for layer in study.layers:
            own = [row[name] for row in rows if row["layer"] == layer]
            assert drawn[f"_layer {layer}"] == own
    found = panel(study, study.main_case("toy"), "mlp")
    assert accuracy["_layer 2"] == list(found.accuracy[2])


def test_the_presets_of_the_paper_have_its_grid_and_the_scripts_their_layers():
    for name in ("gptj", "llama2"):
        config = prune_llm.PRESETS[name]
        assert config.rates == (0, 0.1, 0.5, 0.75, 0.9, 0.95, 0.99, 0.995)
        assert len(config.tasks) == 7
        assert subjects.grid_layers(config, 28) == (0, 1, 26, 27)
        scripts = dataclasses.replace(config, profile="authors_code")
        assert subjects.given_layer(config, "gptj", 28, "mlp") is None
        assert subjects.given_layer(scripts, "gptj", 28, "mlp") == 26
        assert subjects.given_layer(scripts, "llama", 32, "attn") == 30
        assert subjects.given_layer(scripts, "llama", 4, "attn") is None
