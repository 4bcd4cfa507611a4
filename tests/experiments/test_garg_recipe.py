"""The recipes: what each change changes, what they come to, a run and its resume."""

import dataclasses
import json
import sys

import jax
import jax.flatten_util
import jax.numpy as jnp
import numpy as np
import pytest

from experiments import garg_recipe
from experiments._trained import Timing
from experiments.garg_recipe import report, summary
from experiments.garg_recipe.changes import CHANGES, shortened
from experiments.garg_recipe.config import PRESETS
from experiments.garg_recipe.noise import gradient_noise
from experiments.garg_recipe.train import TrainedWithChange
from icltheory import training
from icltheory.training import bayes_targets

CONFIG = PRESETS["cpu"]
SMALL = """
    --preset cpu --dim 2 --num-points 5 --width 8 --num-layers 1 --num-heads 2
    --baseline.steps 12 --baseline.batch-size 8 --baseline.optimizer.name adam
    --baseline.optimizer.warmup-steps 2 --changes --recipe mean posterior
    --seeds 3 5 --points 2 --eval-prompts 64
"""


@pytest.mark.slow
@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("name", CHANGES)
def test_a_change_keeps_the_prompts_and_changes_something(preset, name):
    start = PRESETS[preset].baseline
    end = CHANGES[name](start)
    # Odd numbers of steps may lose one to rounding.
    assert abs(end.prompts - start.prompts) <= max(start.batch_size, end.batch_size)
    assert end != start or name not in PRESETS[preset].changes
    rate = training.learning_rate(end.optimizer, end.steps)
    assert float(rate(end.steps // 2)) > 0
    training.make_optimizer(end.optimizer, end.steps)


def test_the_recipe_is_its_changes_in_order():
    config = dataclasses.replace(CONFIG, recipe=("batch-half", "posterior"))
    settings = config.settings()
    assert list(settings) == ["baseline", *CONFIG.changes, "recipe", "recipe, half"]
    recipe, half = settings["recipe"], settings["recipe, half"]
    assert (recipe.batch_size, recipe.steps, recipe.targets) == (32, 3000, "posterior")
    assert half == shortened(recipe, 0.5)
    assert half.prompts == recipe.prompts // 2
    assert half.optimizer.warmup_steps == recipe.optimizer.warmup_steps // 2


def test_the_last_phase_is_float32():
    setting = CHANGES["float32-last"](CONFIG.baseline)
    assert [phase.until for phase in CONFIG.phases(setting)] == [1200, 1500]
    assert [phase.until for phase in CONFIG.phases(CONFIG.baseline)] == [1500]


@pytest.mark.slow
@pytest.mark.parametrize(("last", "products"), [(0, "HIGH"), (-1, "HIGHEST")])
def test_each_phase_multiplies_in_its_own_precision(last, products):
    """What of a phase's products is float32, as its program asks for it."""
    config = dataclasses.replace(
        CONFIG, dim=2, num_points=5, width=4, num_layers=1, num_heads=1
    )
    setting = CHANGES["float32-last"](config.baseline)
    state = jax.eval_shape(lambda: config.start(setting))
    text = str(jax.make_jaxpr(config.phases(setting)[last].step)(state))
    assert f"(Precision.{products}, " in text
    assert ("bf16" in text) == (last == 0)


def made_up(factors):
    """Three seeds whose excess is 1, 2 and 4 times a factor at the end."""
    found = {}
    for name, factor in factors.items():
        excess = np.stack([np.ones(3), factor * np.array([1.0, 2.0, 4.0])])
        errors = np.broadcast_to(excess[..., None] / 10, (2, 3, CONFIG.num_points))
        timing = Timing(10, 0.3, 1.0)
        found[name] = TrainedWithChange(
            np.array([64, 128]), errors, excess, None, timing
        )
    return found


@pytest.mark.slow
def test_ratios_are_of_pairs_and_claims_can_fail():
    config = dataclasses.replace(CONFIG, changes=("linear", "mean"))
    wobble = np.array([1.0, 1.1, 1 / 1.1])
    factors = {"baseline": 1.0, "linear": 2.0, "mean": 0.5 * wobble}
    trained = made_up(factors | {"recipe": 0.1, "recipe, half": 1.5})
    base, linear, mean, recipe, half = summary.rows(config, trained)
    assert base.ratio == (1.0, 0.0)
    np.testing.assert_allclose(linear.ratio, (2.0, 0.0), atol=1e-12)
    np.testing.assert_allclose(mean.ratio, (0.5, np.log(1.1) / np.sqrt(3)))
    spread = np.std([1, 2, 4], ddof=1) / np.sqrt(3)
    np.testing.assert_allclose(recipe.high, (0.07 / 3, 0.01 * spread))
    assert recipe.ms == pytest.approx(10.0)
    held = [claim.held for claim in report.claims(config, [base, linear, mean])]
    assert held == [False, True]
    held = [claim.held for claim in report.claims(config, [base, recipe, half])]
    assert held == [True, False]
    checks = report.checks(config, [base, dataclasses.replace(recipe, high=(2, 0))])
    assert [check.passed for check in checks] == [True, False]
    fallen = made_up(factors | {"recipe": np.nan, "recipe, half": 1.0})
    (check,) = report.checks(config, summary.rows(config, fallen)[3:4])
    assert not check.passed
    report.draw(config, fallen, summary.rows(config, fallen))


def test_the_command_line_writes_what_is_reported_of_its_models(tmp_path, monkeypatch):
    factors = {"baseline": 1.0, "linear": 2.0, "recipe": 0.1, "recipe, half": 1.5}
    asked = []

    def train(config, run):
        asked.append(config)
        return made_up(factors)

    noise = {"labels": np.array([2.0, 3.0]), "posterior": np.array([1.0, 1.0])}
    monkeypatch.setattr(sys.modules["experiments.garg_recipe.main"], "train", train)
    monkeypatch.setattr(report, "gradient_noise", lambda config, params: noise)
    args = ["--preset", "cpu", "--changes", "linear", "--output", str(tmp_path)]
    result = garg_recipe.main(args)
    assert asked == [dataclasses.replace(CONFIG, changes=("linear",))]
    (folder,) = (tmp_path / "garg_recipe").iterdir()
    text = (folder / "result.json").read_text()
    assert json.loads(text, parse_constant=pytest.fail) == result
    assert (folder / "recipe.png").is_file()
    assert list(result["settings"]) == list(factors)
    assert [claim["held"] for claim in result["claims"]] == [False, True, False]
    assert result["gradient_noise"]["at the start"]["labels"] == [2.0, 3.0]


@pytest.mark.slow
def test_the_noise_is_that_of_gradients_one_by_one():
    config = dataclasses.replace(
        CONFIG, dim=2, num_points=5, width=4, num_layers=1, num_heads=1, eval_prompts=64
    )
    params = jax.jit(lambda: config.start(config.baseline).params)()
    traces = gradient_noise(config, params)
    key = training.stream_key(0, "evaluation")
    X, y = jax.jit(lambda key: config.task().sample(key, 4, 64).points())(key)
    known = jax.jit(lambda X, y: bayes_targets(config.task(), X, y))(X, y)
    model = config.model(config.baseline)
    own = jax.tree.map(lambda leaf: leaf[1], params)

    @jax.jit
    def gradient(X, y, goal):
        def loss(params):
            answers = model.apply({"params": params}, X[None], y[None])[0]
            return jnp.mean((answers - goal) ** 2)

        return jax.flatten_util.ravel_pytree(jax.grad(loss)(own))[0]

    X, y, known = (np.asarray(values) for values in (X, y, known))
    for name, goals in (("labels", y), ("posterior", known)):
        each = np.stack([gradient(*row) for row in zip(X, y, goals, strict=True)])
        expected = each.astype(np.float64).var(axis=0, ddof=1).sum()
        np.testing.assert_allclose(traces[name][1], expected, rtol=1e-4)


@pytest.mark.slow
def test_a_killed_run_ends_with_the_numbers_of_a_whole_one(tmp_path, interrupted):
    args = [*SMALL.split(), "--output"]
    whole = garg_recipe.main([*args, str(tmp_path / "whole")])
    (folder,) = (tmp_path / "whole" / "garg_recipe").iterdir()
    for name in ("result.json", "config.json"):
        json.loads((folder / name).read_text(), parse_constant=pytest.fail)
    assert json.loads((folder / "result.json").read_text()) == whole
    assert {path.name for path in folder.glob("*.png")} == {"recipe.png"}

    with interrupted(3):
        garg_recipe.main([*args, str(tmp_path / "cut")])
    (stopped,) = (tmp_path / "cut" / "garg_recipe").iterdir()
    resumed = garg_recipe.main(["--resume", str(stopped)])
    assert resumed["gradient_noise"] == whole["gradient_noise"]
    times = ("ms", "compile_seconds")
    for name, row in whole["settings"].items():
        again = resumed["settings"][name]
        assert {k: v for k, v in again.items() if k not in times} == {
            k: v for k, v in row.items() if k not in times
        }


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"changes": ("faster",)}, "changes: expected some of adam"),
        ({"seeds": (0,)}, "seeds: expected at least two seeds"),
        ({"num_points": 6}, "num_points: expected at least 2 dim"),
        ({"points": 1000}, "baseline.steps: expected at least two steps per point"),
    ],
)
def test_bad_settings_are_refused(changed, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(CONFIG, **changed)
