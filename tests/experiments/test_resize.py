"""Options that change the size of a recipe, and what follows them."""

import dataclasses

import pytest

from experiments import task_diversity
from experiments._frame.command_line import parse
from experiments._frame.resize import resized
from experiments.garg_linear import PRESETS
from icltheory.training import Ramp


def test_the_warm_up_keeps_its_share_of_the_steps():
    config = parse(PRESETS, ["--preset", "cpu", "--steps", "35"]).config
    assert (config.steps, config.optimizer.warmup_steps) == (35, 2)
    short = parse(PRESETS, ["--preset", "cpu", "--steps", "2"]).config
    assert short.optimizer.warmup_steps == 0
    own = ["--steps", "35", "--optimizer.warmup-steps", "7"]
    assert parse(PRESETS, own).config.optimizer.warmup_steps == 7


def test_a_recipe_inside_a_config_follows_its_own_steps():
    args = ["--preset", "cpu", "--recipe.steps", "100"]
    config = parse(task_diversity.PRESETS, args).config
    preset = task_diversity.PRESETS["cpu"].recipe
    share = preset.optimizer.warmup_steps * 100 // preset.steps
    assert (config.recipe.steps, config.recipe.optimizer.warmup_steps) == (100, share)
    own = [*args, "--recipe.optimizer.warmup-steps", "7"]
    found = parse(task_diversity.PRESETS, own).config
    assert found.recipe.optimizer.warmup_steps == 7


def test_prompts_and_curriculum_follow_the_dimension():
    config = parse(PRESETS, ["--preset", "paper", "--dim", "4"]).config
    assert (config.dim, config.num_points) == (4, 9)
    assert config.curriculum.dims == Ramp(1, 4, 1, 2000)
    assert config.curriculum.points == Ramp(2, 9, 2, 2000)
    other = ["--preset", "cpu", "--dim", "2", "--num-points", "9"]
    with pytest.raises(ValueError, match=r"curriculum.points.end: expected the full 9"):
        parse(PRESETS, other)


def test_what_is_not_asked_for_stays():
    config = PRESETS["cpu"]
    assert resized(config, ["--width", "8"]) is config
    assert resized(config, ["--steps", "many"]) is config
    assert resized(config, ["--steps", str(config.steps)]) == config

    @dataclasses.dataclass(frozen=True)
    class Other:
        rate: float = 1.0

    assert resized(Other(), ["--steps", "3", "--dim", "2"]) == Other()


def test_what_cannot_be_is_refused_before_a_folder_is_made(tmp_path):
    for args, message in (
        (["--num-heads", "5"], "num_heads: expected a divisor of width 64, got 5"),
        (["--output", ""], "output: expected a folder, got an empty path"),
    ):
        with pytest.raises(ValueError, match=message):
            parse(PRESETS, ["--output", str(tmp_path), "--preset", "cpu", *args])
    assert not list(tmp_path.iterdir())
