"""Configs: sizes that follow others, stored configs, and runs that are extended."""

import dataclasses
import json
import math
import re

import pytest

from experiments.frame import (
    Run,
    check_ascending,
    check_at_least,
    check_each,
    check_seeds,
)
from experiments.frame.command_line import parse
from experiments.frame.config import resized
from icltheory.training import OptimizerConfig, Ramp
from tests.experiments.tiny import PRESETS, Config, Recipe


@dataclasses.dataclass
class Values:
    """A field of any value."""

    x: object


@pytest.mark.parametrize(
    ("check", "rule", "right", "wrong", "expected"),
    [
        (check_at_least, [2], 2, 1, "at least 2, got 1"),
        (check_at_least, [2], (3, 2), (3, 1), "at least one value, each at least 2, "),
        (check_each, ["in (0, 1]"], 1, 0, "a number in (0, 1], got 0"),
        (check_each, ["above 0"], (1,), (), "at least one value, each above 0, got ()"),
        (check_ascending, [], (1, 3), (3, 1), "ascending whole numbers >= 1, got"),
        (check_ascending, [], (4,), (0, 1), "ascending whole numbers >= 1, got"),
        (check_ascending, [], (4,), (), "ascending whole numbers >= 1, got ()"),
    ],
)
def test_values_are_checked_one_by_one(check, rule, right, wrong, expected):
    check(Values(right), *rule, "x")
    with pytest.raises(ValueError, match=re.escape(f"x: expected {expected}")):
        check(Values(wrong), *rule, "x")
    with pytest.raises(ValueError, match="seeds: expected at least two seeds, all"):
        check_seeds("seeds", (1, 1))


def config_of(*args):
    return parse(PRESETS, args).config


def test_the_warm_up_keeps_its_share_of_the_steps():
    for steps, warmup in (("35", 3), ("5", 0)):
        config = config_of("--steps", steps)
        assert (config.steps, config.optimizer.warmup_steps) == (int(steps), warmup)
    own = config_of("--steps", "35", "--optimizer.warmup-steps", "7")
    assert own.optimizer.warmup_steps == 7
    part = config_of("--part.steps=100").part
    assert (part.steps, part.optimizer.warmup_steps) == (100, 10)
    part = config_of("--part.steps", "100", "--part.optimizer.warmup-steps", "7").part
    assert part.optimizer.warmup_steps == 7


def test_prompts_and_curriculum_follow_the_dimension():
    config = config_of("--dim", "10")
    assert (config.dim, config.num_points) == (10, 21)
    assert config.curriculum.dims == Ramp(4, 10, 1, 10)
    assert config.curriculum.points == Ramp(9, 21, 2, 10)
    assert config_of("--dim", "10", "--num-points", "9").num_points == 9


def test_a_config_says_itself_what_a_task_changes():
    @dataclasses.dataclass(frozen=True)
    class Tasked:
        task: str = "linear"
        width: int = 1

        def of_task(self, task):
            return Tasked(task, 2)

    assert resized(Tasked(), ["--task", "tree"]) == Tasked("tree", 2)
    assert resized(Tasked(), ["--task", "linear"]) == Tasked()


@pytest.mark.parametrize("args", [["--prompts", "8"], ["--steps", "many"], ["--dim"]])
def test_what_is_not_asked_for_stays(args):
    assert resized(PRESETS["cpu"], args) is PRESETS["cpu"]


def run_of(tmp_path, config=PRESETS["cpu"], name="tiny"):
    return Run.create(tmp_path, name, "cpu", config).folder


def resumed(folder, *args):
    return parse(PRESETS, ["--resume", str(folder), *args])


def refusal(folder, *args):
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        resumed(folder, *args)
    (line,) = str(caught.value).splitlines()
    return line


@pytest.mark.parametrize("config", [*PRESETS.values(), Config(penalty=math.inf)])
def test_a_stored_config_comes_back_as_it_was(config, tmp_path):
    launch = resumed(run_of(tmp_path, config))
    assert launch.config == config
    assert launch.unmodified is (config in PRESETS.values())
    assert not launch.extends


def test_fields_that_came_later_have_their_defaults_and_are_named(tmp_path, capsys):
    folder = run_of(tmp_path)
    path = folder / "config.json"
    stored = json.loads(path.read_text())
    del stored["config"]["penalty"], stored["config"]["optimizer"]["average"]
    path.write_text(json.dumps(stored))
    assert resumed(folder).config == PRESETS["cpu"]
    err = capsys.readouterr().err
    named = "optimizer.average = 0.0, penalty = 0.5"
    assert err == f"warning: {path} lacks newer fields: {named}\n"
    kept = stored["config"]["curriculum"]["dims"].pop("end")
    path.write_text(json.dumps(stored))
    assert "missing a required argument: 'end'" in refusal(folder)
    stored["config"]["curriculum"]["dims"]["end"] = kept
    stored["config"]["optimizer"]["lookahead"] = 3
    path.write_text(json.dumps(stored))
    line = refusal(folder)
    assert line.startswith("resume: expected a run folder with a readable config.json")
    assert "unknown fields in the stored config: optimizer.lookahead" in line


def test_what_is_no_run_of_the_experiment_is_refused(tmp_path):
    assert "it is a run of cot, not of tiny" in refusal(run_of(tmp_path, name="cot"))
    assert "FileNotFoundError" in refusal(tmp_path)


def test_a_resume_with_another_config_is_refused(tmp_path):
    folder = run_of(tmp_path)
    line = f"resume: expected the options of {folder}, got prompts={{}} (stored 8)"
    assert refusal(folder, "--prompts", "7").startswith(line.format(7))
    assert refusal(folder, "--preset", "gpu").startswith(line.format(64))
    assert sorted(path.name for path in folder.iterdir()) == ["config.json"]


def extensible(schedule="constant", **changes):
    optimizer = OptimizerConfig(schedule=schedule, warmup_steps=7)
    return Config(**{"optimizer": optimizer, "part": Recipe(), **changes})


def test_more_steps_extend_a_run_of_a_constant_rate(tmp_path):
    folder = run_of(tmp_path, extensible())
    launch = resumed(folder, "--steps", "5000")
    assert launch.extends
    assert launch.config == extensible(steps=5000)  # the warm-up stays what it was
    assert Run(folder, launch).extend()
    again = resumed(folder)
    assert (again.config.steps, again.extends) == (5000, False)
    assert not Run(folder, again).extend()
    stored = json.loads((folder / "config.json").read_text())
    assert stored["command"].endswith("--steps 5000")


@pytest.mark.parametrize("schedule", ["cosine", "linear", "triangle"])
def test_a_schedule_of_the_whole_run_is_refused(schedule, tmp_path):
    folder = run_of(tmp_path, extensible(schedule))
    assert refusal(folder, "--steps", "5000") == (
        f"steps: expected 200 as in {folder}, got 5000: the learning rate "
        f"({schedule}) depends on the number of all steps; start a new run"
    )


@pytest.mark.parametrize(
    ("config", "args", "message"),
    [
        (extensible(), ["--steps", "100"], "steps: expected more than the 200 steps"),
        (extensible(steps=201), ["--steps", "500"], "in the run that is extended, got"),
        (extensible(needs="parts are shares"), ["--steps", "500"], ": parts are share"),
        (extensible(), ["--steps", "500", "--dim", "6"], "got dim=6 (stored 5); leave"),
        (extensible(), ["--optimizer.learning-rate", "1"], "(stored 0.0001)"),
    ],
)
def test_what_no_extension_can_do_is_refused(config, args, message, tmp_path):
    assert message in refusal(run_of(tmp_path, config), *args)


def test_a_training_that_cannot_be_extended_is_named(tmp_path, monkeypatch):
    monkeypatch.delattr(Recipe, "needs_all_steps")
    folder = run_of(tmp_path)
    line = refusal(folder, "--part.steps", "500")
    assert "got 500: this training cannot be extended; start a new run" in line
