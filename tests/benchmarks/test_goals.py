"""The goals of a GPU on sizes of no weight: what is counted, what is called met."""

import dataclasses
import json
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks import goals
from benchmarks._profile import profile
from benchmarks.goals import Goal
from experiments.garg_linear import PRESETS
from icltheory.training import Curriculum, OptimizerConfig

TINY = dataclasses.replace(
    PRESETS["cpu"],
    **{"dim": 2, "num_points": 5, "width": 4, "num_layers": 1, "num_heads": 1},
    curriculum=Curriculum.none(2, 5),
    optimizer=OptimizerConfig("adam", 1e-3),
    steps=20,
    chunk_steps=5,
    batch_size=4,
    eval_prompts=8,
)


@pytest.mark.parametrize(
    ("reached", "asked", "at_least", "met"),
    [
        (800.0, 800.0, True, True),
        (799.0, 800.0, True, False),
        (0.02, 0.02, False, True),
        (0.021, 0.02, False, False),
        (math.nan, 0.02, False, False),
        (math.nan, 800.0, True, False),
        (1.0, None, True, None),
        (math.nan, None, True, False),
    ],
)
def test_a_goal_is_met_at_its_limit_and_never_by_nan(reached, asked, at_least, met):
    assert Goal("", reached, asked, at_least).met is met


def test_whole_chunks_fit_with_a_tenth_kept_back():
    """90 s: 81 of them less 6 of compiling, 75 s of steps of 10 ms."""
    config = dataclasses.replace(TINY, chunk_steps=1000, steps=10**6)
    assert goals.steps_within(config, 90.0, 0.01, 6.0) == 7000
    less = goals.shortened(PRESETS["gpu"], 3250)
    assert (less.steps, less.optimizer.warmup_steps) == (3250, 136)
    stairs = less.curriculum.dims, less.curriculum.points
    assert [ramp.interval for ramp in stairs] == [27, 27]
    assert goals.shortened(PRESETS["gpu"], 100).curriculum.dims.interval == 1
    few = dataclasses.replace(config, steps=3000)
    assert goals.steps_within(few, 90.0, 0.01, 6.0) == 3000
    with pytest.raises(ValueError, match="expected enough for a chunk of 1000"):
        goals.steps_within(config, 90.0, 0.08, 6.0)


@pytest.mark.slow
def test_errors_are_those_at_the_dimension_and_twice_of_it(monkeypatch):
    """The number of context examples is the index of the prefix."""
    prefixes = np.arange(5.0)

    def made_up(setup, params, prompt):
        assert {leaf.shape[0] for leaf in jax.tree.leaves(params)} == {1}
        assert setup.config.seeds == (7,)
        return np.broadcast_to(prefixes, (1, 8, 5))

    monkeypatch.setattr(goals, "model_errors", made_up)
    near, far, spent = goals.errors(TINY, 600.0, [7])
    assert (near.reached, far.reached) == (2.0, 4.0)
    assert near.name == "error at k = 2, seed 7"
    assert "20 of 20 steps" in near.note
    assert 0 < spent.reached < 600
    assert not near.at_least
    assert {near.asked, far.asked, spent.asked} == {None}


def test_what_fails_is_a_goal_that_was_missed_and_the_others_are_measured(
    tmp_path, monkeypatch, capsys
):
    """A program that does not compile loses neither the others nor the file."""
    paces = iter([(0.5, 1.0), RuntimeError("out of shared memory\nand more")])

    def pace(setup, chunks=4):
        found = next(paces, (0.5, 1000.0))
        if isinstance(found, Exception):
            raise found
        return found

    def refuse(setup):
        raise RuntimeError("no CUPTI")

    monkeypatch.setattr(goals, "pace", pace)
    monkeypatch.setattr(goals, "longest", refuse)
    file = tmp_path / "goals.json"
    flags = ["--preset", "cpu", "--output", str(file), "--profile"]
    found = goals.main(flags)
    assert found[0]["reached"] == 2.0
    assert [row["met"] for row in found] == [None, False, False]
    assert found[1]["note"] == "RuntimeError: out of shared memory"
    assert "expected enough for a chunk" in found[2]["note"]
    assert len(json.loads(file.read_text())) == 3
    assert "profile: RuntimeError: no CUPTI" in capsys.readouterr().out


def test_the_published_model_on_a_gpu_has_goals(monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert goals._asked(PRESETS["gpu"], 60.0) == (800.0, 1000.0, 0.02, 0.0006, 60.0)
    assert set(goals._asked(TINY)) == {None}


@pytest.mark.slow
def test_a_profile_names_what_ran_and_how_often():
    x = jnp.ones((64, 64))

    @jax.jit
    def repeated(x):
        return jax.lax.fori_loop(0, 3, lambda _, x: jnp.tanh(x @ x), x)

    jax.block_until_ready(repeated(x))
    spent = profile(lambda: repeated(x))
    assert spent == sorted(spent, key=lambda one: -one.seconds)
    assert {one.calls for one in spent if "tanh" in one.name} == {3}
    assert not any(one.name.startswith("while") for one in spent)
    assert all(one.seconds >= 0 for one in spent)


@pytest.mark.slow
def test_the_command_prints_the_table_last_and_keeps_it(tmp_path, monkeypatch, capsys):
    """Every kind of speed is counted in models; then come the errors of a seed."""
    monkeypatch.setitem(PRESETS, "cpu", dataclasses.replace(TINY, width=2))
    monkeypatch.setattr(goals.speeds, "__defaults__", (2,))
    file = tmp_path / "goals.json"
    flags = ["--seconds", "600", "--seeds", "3", "--profile", "--output", str(file)]
    found = goals.main(flags)
    assert json.loads(file.read_text()) == found
    assert len(found) == 2 + 3
    names = [row["name"] for row in found[:2]]
    assert names == ["steps/s, batch 64", "model-steps/s, 8 models"]
    assert all(row["reached"] > 0 for row in found[:2])
    out = capsys.readouterr().out
    assert out.index("A step:") < out.index("The goals")
    assert "seconds, seed 3" in out[out.index("The goals") :]
