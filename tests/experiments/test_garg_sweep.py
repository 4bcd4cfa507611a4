"""The sweep on linear regression: its measures, a small run, its resume, its words."""

import dataclasses
import json
import sys
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments import garg_sweep
from experiments._trained import Recipe, Timing
from experiments.garg_sweep import report, summary
from experiments.garg_sweep.measure import ReferenceRisks, SweepMeasurements, measure
from experiments.garg_sweep.train import means
from icltheory import training
from icltheory.training import Curriculum, OptimizerConfig

CONFIG = garg_sweep.Config(
    recipe=Recipe(
        model="gpt2",
        dim=2,
        num_points=5,
        num_layers=1,
        num_heads=2,
        steps=10,
        batch_size=8,
        optimizer=OptimizerConfig("sgd", 0.1),
        seeds=(3, 5),
    ),
    widths=(4, 8),
    learning_rates=(0.1, 1e7),
    noise_vars=(0.0, 0.5),
    curriculum=Curriculum.none(2, 5),
    eval_prompts=64,
)
SMALL = """
    --preset cpu --recipe.num-layers 1 --recipe.num-heads 2 --recipe.steps 12
    --recipe.batch-size 8 --recipe.chunk-steps 6 --recipe.checkpoint-every 6
    --recipe.seeds 3 5 --recipe.optimizer.name sgd --recipe.optimizer.schedule constant
    --recipe.optimizer.warmup-steps 0 --recipe.optimizer.clip-norm 0
    --widths 4 8 --learning-rates 0.1 1e7 --noise-vars 0 0.5 --eval-prompts 64
"""


@pytest.mark.slow
def test_every_model_is_measured_against_its_noise():
    """Two members by hand: their answers, the truth, and ridge by its formula."""
    parts = jax.device_get([state for state, _ in CONFIG.parts()])
    measured = measure(CONFIG, parts)
    assert measured.errors.shape == (2, 2, 2, 2, 5)
    for noise, width, rate, seed in [(0, 1, 0, 1), (1, 0, 1, 0)]:
        task = CONFIG.recipe.task(CONFIG.noise_vars[noise])
        draw = jax.jit(lambda key, task=task: task.sample(key, 4, 64))
        prompt = draw(training.stream_key(3, "evaluation"))
        X, y = (np.asarray(a, np.float64) for a in prompt.points())
        index = 4 * noise + 2 * rate + seed
        params = jax.tree.map(lambda leaf, i=index: leaf[i], parts[width].params)
        model = CONFIG.model(CONFIG.widths[width])
        predict = jax.jit(model.apply)
        answers = np.asarray(predict({"params": params}, *prompt.points()))
        truth = np.einsum("bpd,bd->bp", X, np.asarray(prompt.w, np.float64))
        at = noise, width, rate, seed
        np.testing.assert_allclose(
            measured.errors[at], ((answers - truth) ** 2).mean(axis=0) / 2, rtol=1e-4
        )
        bayes = np.zeros_like(answers)
        for b, k in np.ndindex(64, 5):
            known, labels = X[b, :k], y[b, :k]
            penalty = 0.5 if noise else 1e-9
            gram = known.T @ known + penalty * np.eye(2)
            bayes[b, k] = X[b, k] @ np.linalg.solve(gram, known.T @ labels)
        distance = ((answers - bayes) ** 2).mean(axis=0) / 2
        # Two inputs may be nearly parallel: float32 and the penalty tell at k = 2.
        np.testing.assert_allclose(measured.distances[at], distance, rtol=2e-2)
    assert (measured.diverged_at == -1).all()
    # Untrained models know nothing of the noise to come: the identity holds for all.
    assert np.abs(measured.identity_z[1]).max() < 5


def made_up(diverged=(), idle=()):
    """One noise, two widths, two rates, three seeds; distances by hand."""
    errors = np.full((1, 2, 2, 3, 5), 0.2)
    distances = np.empty((1, 2, 2, 3, 5))
    for width, rate in np.ndindex(2, 2):
        level = [[0.4, 0.1], [0.05, 0.3]][width][rate]
        distances[0, width, rate] = level + np.array([-0.01, 0, 0.01])[:, None]
    at = np.full((1, 2, 2, 3), -1)
    for place in diverged:
        at[place] = 7
    for place in idle:
        errors[place] = 1.0
    lines = ReferenceRisks(
        np.full((4, 5), 0.1) + np.arange(4)[:, None] * 0.01,
        np.full((4, 5), 0.1),
        np.full(5, np.inf),
        np.full(5, 0.3),
    )
    return SweepMeasurements(errors, distances, np.zeros((1, 2, 2, 3)), at, [lines])


CHOSEN = dataclasses.replace(
    CONFIG,
    recipe=dataclasses.replace(CONFIG.recipe, seeds=(0, 1, 2)),
    noise_vars=(0.0,),
    learning_rates=(0.1, 0.2),
)


def test_the_best_rate_is_that_of_models_which_all_learn():
    found = summary.cells(CHOSEN, made_up())
    assert [cell.fate for cell in found] == ["learns"] * 4
    mean, error = found[0].distance
    np.testing.assert_allclose([mean, error], [0.4, 0.01 / np.sqrt(3)])
    assert summary.best(found, 0.0, 4).learning_rate == 0.2
    assert summary.best(found, 0.0).width == 8
    fallen = made_up(diverged=[(0, 1, 0, 2)], idle=[(0, 0, 1, 0)])
    found = summary.cells(CHOSEN, fallen)
    assert found[1].fate == "1/3 learn nothing"
    assert found[2].fate == "1/3 diverge at 7"
    assert summary.best(found, 0.0).distance[0] == pytest.approx(0.3)
    assert summary.best(found, 9.0) is None


def test_checks_and_claims_can_fail():
    measured = made_up()
    found = summary.cells(CHOSEN, measured)
    sampled, one_layer, identity = report.checks(CHOSEN, measured, found)
    assert sampled.passed
    assert one_layer.passed
    assert identity.passed
    nearer, smaller = report.claims(CHOSEN, found)
    assert nearer.held
    assert smaller.held

    lines = dataclasses.replace(measured.lines[0], bayes_risk=np.full((4, 5), 0.0))
    wrong = dataclasses.replace(
        measured,
        lines=[lines],
        errors=measured.errors + 0.2,
        distances=measured.distances[:, ::-1],
    )
    wrong = dataclasses.replace(wrong, identity_z=measured.identity_z + 9)
    found = summary.cells(CHOSEN, wrong)
    assert not any(check.passed for check in report.checks(CHOSEN, wrong, found))
    assert not any(claim.held for claim in report.claims(CHOSEN, found))
    # Where nothing learned there is nothing to claim, and the check says so.
    none = made_up(idle=[(0,)])
    found = summary.cells(CHOSEN, none)
    assert report.claims(CHOSEN, found) == []
    assert not report.checks(CHOSEN, none, found)[1].passed


def test_the_command_line_writes_what_is_reported_of_its_models(tmp_path, monkeypatch):
    main = sys.modules["experiments.garg_sweep.main"]
    asked = []

    def train(config, run):
        asked.append(config)
        return SimpleNamespace(state=SimpleNamespace(parts=None), timing=Timing(3, 1.5))

    monkeypatch.setattr(main, "train", train)
    monkeypatch.setattr(main, "measure", lambda config, parts: made_up())
    changed = "--recipe.seeds 0 1 2 --noise-vars 0 --learning-rates 0.1 0.2"
    args = [*SMALL.split(), *changed.split(), "--output", str(tmp_path)]
    result = garg_sweep.main(args)
    (config,) = asked
    assert (config.widths, config.learning_rates) == ((4, 8), (0.1, 0.2))
    assert (config.noise_vars, config.recipe.seeds) == ((0.0,), (0, 1, 2))
    (folder,) = (tmp_path / "garg_sweep").iterdir()
    text = (folder / "result.json").read_text()
    assert json.loads(text, parse_constant=pytest.fail) == result
    assert (folder / "sweep.png").is_file()
    assert len(result["cells"]) == 4
    assert [claim["held"] for claim in result["claims"]] == [True, True]
    # Four cells of three seeds, two steps a second.
    assert result["timing"]["model_steps_per_second"] == 24


def test_losses_that_are_no_numbers_are_left_out_of_the_metrics():
    losses = jnp.array([[1.0, 2.0], [3.0, jnp.nan]])
    alive = jnp.array([[True, True], [True, False]])
    line = means({"loss": losses, "alive": alive})
    assert line == {"loss": 2.0, "alive": 1, "losses": [2.0, None]}
    assert means({"loss": losses[1:, 1:], "alive": alive[1:, 1:]})["loss"] == 0.0


@pytest.mark.slow
def test_a_killed_run_ends_with_the_numbers_of_a_whole_one(tmp_path, interrupted):
    args = [*SMALL.split(), "--output"]
    whole = garg_sweep.main([*args, str(tmp_path / "whole")])
    (folder,) = (tmp_path / "whole" / "garg_sweep").iterdir()
    for name in ("result.json", "config.json"):
        json.loads((folder / name).read_text(), parse_constant=pytest.fail)
    for line in (folder / "metrics.jsonl").read_text().splitlines():
        json.loads(line, parse_constant=pytest.fail)
    assert json.loads((folder / "result.json").read_text()) == whole
    assert {path.name for path in folder.glob("*.png")} == {"sweep.png"}
    # The large rate ends all its models, and no other.
    for cell in whole["cells"]:
        fell = [step >= 0 for step in cell["diverged_at"]]
        assert fell == [cell["learning_rate"] > 1] * 2, cell

    with interrupted(1):
        garg_sweep.main([*args, str(tmp_path / "cut")])
    (stopped,) = (tmp_path / "cut" / "garg_sweep").iterdir()
    resumed = garg_sweep.main(["--resume", str(stopped)])
    for name in ("cells", "references", "checks", "claims"):
        assert resumed[name] == whole[name], name
    lines = (stopped / "metrics.jsonl").read_text()
    assert lines == (folder / "metrics.jsonl").read_text()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("--widths 32 16", "widths: expected ascending values"),
        ("--widths 16 18", "widths: expected multiples of 4 heads, got 18"),
        ("--noise-vars -1", "noise_vars: expected values >= 0, got -1.0"),
        ("--learning-rates 0", "learning_rates: expected values > 0, got 0.0"),
        ("--recipe.seeds 1", "recipe.seeds: expected at least two seeds"),
        ("--recipe.seeds 1 1", "recipe.seeds: expected at least two seeds"),
        ("--recipe.num-heads 0", "num_heads: expected at least 1, got 0"),
        ("--recipe.num-points 4", "recipe.num_points: expected at least 2 dim + 1 = 5"),
        ("--recipe.model linear", "recipe: expected model gpt2"),
        ("--recipe.task-mean 1", "recipe: expected task_mean 0"),
        ("--curriculum.dims.start 1 --curriculum.dims.end 1", "curriculum.dims.end"),
        ("--at-once -1", "at_once: expected at least 0, got -1"),
        ("--eval-prompts 1", "eval_prompts: expected at least 2, got 1"),
    ],
)
def test_impossible_configs_are_refused_before_anything_is_written(
    change, message, refused
):
    refused(garg_sweep.main, change.split(), message)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gpu", "paper"])
def test_the_larger_presets_are_whole(name):
    config = garg_sweep.PRESETS[name]
    assert len(config.ensemble()) == 16
    assert config.counted() == (10, 20, 40)
    config.recipe.transformation()
