"""Experiments end to end: small runs, kill and resume, and what a user mistypes."""

import json
import random
import shlex
import shutil
import signal
import time

import jax
import numpy as np
import pytest

from experiments import garg_linear
from experiments._frame.program import run_program
from experiments.garg_linear.evaluate import evaluation_prompt
from icltheory import training
from tests import processes

SMALL = {
    "dim": 2,
    "num-points": 5,
    "width": 8,
    "num-layers": 1,
    "num-heads": 2,
    "steps": 120,
    "chunk-steps": 5,
    "checkpoint-every": 30,
    "eval-prompts": 64,
    "curriculum.dims.start": 1,
    "curriculum.dims.end": 2,
    "curriculum.dims.interval": 25,
    "curriculum.points.start": 3,
    "curriculum.points.end": 5,
    "curriculum.points.interval": 25,
    "optimizer.name": "adam",
    "optimizer.warmup-steps": 5,
}


def arguments(output, **changes):
    options = SMALL | {name.replace("_", "-"): v for name, v in changes.items()}
    pairs = [(f"--{name}", str(value)) for name, value in options.items()]
    flat = [part for pair in pairs for part in pair]
    return ["--preset", "cpu", "--output", str(output), *flat]


def run_folder(output):
    (folder,) = (output / "garg_linear").iterdir()
    return folder


def program(args):
    return processes.program("garg_linear", args)


def finish(process):
    return processes.finish(process, timeout=300)


def as_alone():
    """The precision of a program of its own, which is not that of the tests."""
    return jax.enable_x64(False)


def final_state(folder):
    """Bytes of every array of the last checkpoint, through orbax."""
    import orbax.checkpoint as ocp

    with ocp.StandardCheckpointer() as reader:
        newest = sorted((folder / "checkpoints").iterdir())[-1]
        return newest.name, reader.restore(newest / "state")


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run that nothing stopped, its folder and what it returned."""
    output = tmp_path_factory.mktemp("whole")
    with as_alone():
        result = garg_linear.main(arguments(output))
    return run_folder(output), result


def test_a_small_run_writes_everything_it_promises(whole):
    folder, result = whole
    names = {path.name for path in folder.iterdir() if path.suffix != ".svg"}
    expected = {
        "config.json",
        "metrics.jsonl",
        "result.json",
        "report.html",
        "timing.json",
        "checkpoints",
    }
    assert names == expected | {
        *("figure5a.png", "figure5b.png", "loss.png", "attention.png")
    }
    assert json.loads((folder / "result.json").read_text()) == result
    lines = [json.loads(x) for x in (folder / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == list(range(5, 125, 5))
    assert (lines[0]["active_dims"], lines[-1]["active_dims"]) == (1, 2)
    assert sum("errors" in line for line in lines) == 6
    assert lines[-1]["least_squares_loss"] == pytest.approx((2 + 1) / 5)
    curves = result["curves"]
    assert set(curves) >= {"Transformer", "least squares", "averaging", "3-NN"}
    for curve in curves.values():
        assert len(curve["mean"]) == 5
    # A model that was not trained long enough must be reported as such.
    verdicts = {check["name"]: check["passed"] for check in result["checks"]}
    assert not verdicts["Transformer against least squares at k = 4"]
    assert not result["passed"]


def test_the_model_of_a_run_is_loaded_again(whole, tmp_path):
    folder, result = whole
    with as_alone():
        setup, params = garg_linear.load(folder)
        prompt = evaluation_prompt(setup)
        errors = training.prefix_errors(setup.model, params, prompt).mean(axis=0)
    expected = np.array(result["curves"]["Transformer"]["mean"])
    np.testing.assert_allclose(errors / setup.config.dim, expected, rtol=1e-5)
    empty = tmp_path / "empty"
    empty.mkdir()
    shutil.copy(folder / "config.json", empty)
    with pytest.raises(ValueError, match="^run: expected a run with a checkpoint"):
        garg_linear.load(empty)
    with pytest.raises(ValueError, match="expected a run folder with a readable"):
        garg_linear.load(tmp_path / "none")
    assert not (tmp_path / "none").exists()


@pytest.mark.slow
def test_a_finished_run_is_evaluated_under_shifts(tmp_path, whole):
    folder = shutil.copytree(whole[0], tmp_path / "copy")
    with as_alone():
        result = garg_linear.main(["--resume", str(folder), "--eval-shifts"])
    assert result["curves"] == whole[1]["curves"]
    assert len(json.loads((folder / "shifts.json").read_text())) == 15
    assert (folder / "shifts.png").is_file()


def wait_for_lines(process, output, count):
    """The metrics file of a run in a process of its own, once it has so many lines."""
    deadline = time.monotonic() + 240
    while True:
        assert process.poll() is None, finish(process)
        assert time.monotonic() < deadline
        for path in output.glob("garg_linear/*/metrics.jsonl"):
            if len(path.read_text().splitlines()) >= count:
                return path
        time.sleep(0.005)


@pytest.mark.slow
def test_interrupted_and_killed_and_resumed_it_ends_bit_for_bit_the_same(
    tmp_path, whole
):
    """Ctrl-C, a scheduler's signal, then SIGKILL, each in a process of its own."""
    uninterrupted, _ = whole
    words, stopped_after = arguments(tmp_path), 0
    for end in (signal.SIGINT, signal.SIGTERM):
        victim = program(words)
        metrics = wait_for_lines(victim, tmp_path, stopped_after + 1)
        victim.send_signal(end)
        status, out, err = finish(victim)
        folder = run_folder(tmp_path)
        assert status == 128 + end, err
        assert "stopping after this chunk" in out
        told, _, command = err.splitlines()[-1].partition(": ")
        assert told.startswith("interrupted")
        assert told.endswith("; to continue")
        python, dash, module, *words = shlex.split(command)
        assert (python, dash, module) == ("python", "-m", "experiments.garg_linear")
        assert words == ["--resume", str(folder)]
        stopped_after = len(metrics.read_text().splitlines())
        newest = sorted((folder / "checkpoints").iterdir())[-1]
        assert newest.name == f"step_{stopped_after * 5:08d}"
        assert 0 < stopped_after < 18

    victim = program(words)
    killed_after = random.SystemRandom().randint(stopped_after + 1, 20)
    wait_for_lines(victim, tmp_path, killed_after)
    victim.send_signal(signal.SIGKILL)
    _, out, _ = finish(victim)
    assert f"resuming at step {stopped_after * 5}" in out
    assert not (folder / "result.json").exists()

    with as_alone():
        garg_linear.main(["--resume", str(folder)])
    ends = f"interrupted after {stopped_after} lines, killed after {killed_after}"
    assert metrics.read_bytes() == (uninterrupted / "metrics.jsonl").read_bytes(), ends
    (name, state), (other_name, other) = map(final_state, (folder, uninterrupted))
    assert name == other_name == "step_00000120"
    same = json.loads((folder / "result.json").read_text())["curves"]
    assert same == json.loads((uninterrupted / "result.json").read_text())["curves"]
    jax.tree.map(np.testing.assert_array_equal, state, other)


@pytest.mark.slow
def test_a_damaged_checkpoint_is_named_and_the_one_before_is_used(
    tmp_path, whole, capsys
):
    folder = shutil.copytree(whole[0], tmp_path / "copy")
    before = (folder / "metrics.jsonl").read_bytes()
    newest = folder / "checkpoints" / "step_00000120"
    victim = max(newest.rglob("d/*"), key=lambda path: path.stat().st_size)
    victim.write_bytes(victim.read_bytes()[:-5])
    with as_alone():
        garg_linear.main(["--resume", str(folder)])
    printed = " ".join(capsys.readouterr().out.split())
    assert "checkpoint step_00000120 is damaged" in printed
    assert "resuming at step 90" in printed
    assert (folder / "metrics.jsonl").read_bytes() == before
    assert (folder / "checkpoints" / "step_00000120.1").is_dir()


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--preset", "huge"], "preset: expected one of cpu, gpu, paper, sparse"),
        (["--resume", "nowhere"], "resume: expected a run folder"),
        (["--preset", "cpu", "--num-points", "4"], "num_points: expected at least"),
        (["--preset", "cpu", "--optimizer.name", "lion"], "optimizer: expected one of"),
        (["--preset", "cpu", "--seeds"], "seeds"),
        (
            ["--preset", "cpu", "--seeds", "1", "1"],
            "seeds: expected at least one seed, all",
        ),
        (["--preset", "cpu", "--snapshots"], "snapshots: expected at least one value"),
        (["--preset", "cpu", "--chunk-steps", "0"], "chunk_steps: expected at least 1"),
        (
            ["--preset", "cpu", "--checkpoint-every", "0"],
            "checkpoint_every: expected at least 1, got 0",
        ),
        (["--preset", "cpu", "--eval-prompts", "1"], "eval_prompts: expected at least"),
        (["--preset", "cpu", "--ridge-penalty", "-1"], "ridge_penalty: expected at"),
    ],
)
def test_mistakes_are_one_line_and_nothing_is_written(args, message, tmp_path, capsys):
    with pytest.raises(SystemExit) as ended:
        run_program(
            lambda: garg_linear.main([*args, "--output", str(tmp_path / "runs")])
        )
    assert ended.value.code == 2
    err = capsys.readouterr().err
    assert message in err
    assert len(err.strip().splitlines()) == 1
    assert "Traceback" not in err
    assert not (tmp_path / "runs").exists()


def test_a_results_folder_that_cannot_be_written_is_named(tmp_path, capsys):
    occupied = tmp_path / "file"
    occupied.write_text("not a folder")
    assert processes.status("garg_linear", arguments(occupied)) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "output: expected a folder that can be written" in line
    assert occupied.read_text() == "not a folder"


def test_help_names_the_presets(capsys):
    with pytest.raises(SystemExit):
        garg_linear.main(["--preset", "cpu", "--help"])
    assert (
        "--preset {cpu,gpu,paper,sparse,relu_network,decision_tree,d20}"
        in capsys.readouterr().out
    )


@pytest.mark.slow
def test_the_published_recipe_to_the_letter():
    """Garg et al. 2022, Appendix A.2, and the published configuration."""
    paper = garg_linear.PRESETS["paper"]
    setup = garg_linear.set_up(paper, 1)
    assert (paper.steps, paper.batch_size, paper.dim, paper.num_points) == (
        500_001,
        64,
        20,
        41,
    )
    assert (paper.optimizer.name, paper.optimizer.learning_rate) == ("adam", 1e-4)
    assert (paper.optimizer.clip_norm, paper.optimizer.warmup_steps) == (0, 0)
    assert int(paper.curriculum.dims(29_999)) == 19
    assert int(paper.curriculum.points(30_000)) == 41
    assert (setup.model.num_layers, setup.model.num_heads) == (12, 8)
    assert (setup.model.width, setup.model.num_positions) == (256, 202)
