"""garg_linear end to end: small runs, kill and resume, mistakes, figures."""

import dataclasses
import functools
import json
import random
import shlex
import shutil
import signal
import time

import jax
import numpy as np
import pytest

from experiments import garg_linear, garg_published
from experiments.frame import Report
from experiments.frame.command_line import parse
from experiments.garg_linear import MODEL, PRESETS, set_up
from icltheory import training
from icltheory.plotting import Curve
from icltheory.regression import shifts
from icltheory.training import Ramp
from tests import processes

SMALL = {
    **{"dim": 2, "num-points": 5, "width": 8, "num-layers": 1, "num-heads": 2},
    **{"steps": 120, "chunk-steps": 5, "checkpoint-every": 30, "eval-prompts": 64},
    **{"curriculum.dims.start": 1, "curriculum.dims.end": 2},
    **{"curriculum.dims.interval": 25, "curriculum.points.start": 3},
    **{"curriculum.points.end": 5, "curriculum.points.interval": 25},
    **{"optimizer.name": "adam", "optimizer.warmup-steps": 5},
}
PICTURES = {"figure5a.png", "learning.png", "loss.png", "attention.png"}
MEAN = np.array([1.0, 0.6, 0.1])


def arguments(output, **changes):
    options = SMALL | {name.replace("_", "-"): v for name, v in changes.items()}
    pairs = [(f"--{name}", str(value)) for name, value in options.items()]
    flat = [part for pair in pairs for part in pair]
    return ["--preset", "cpu", "--output", str(output), *flat]


def run_folder(output):
    (folder,) = (output / "garg_linear").iterdir()
    return folder


# The precision of a program of its own, which is not that of the tests.
as_alone = functools.partial(jax.enable_x64, False)


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
    files = {"config.json", "metrics.jsonl", "result.json", "report.html"}
    assert names == files | PICTURES | {"timing.json", "checkpoints", "snapshots"}
    assert json.loads((folder / "result.json").read_text()) == result
    lines = [json.loads(x) for x in (folder / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == list(range(5, 125, 5))
    assert (lines[0]["active_dims"], lines[-1]["active_dims"]) == (1, 2)
    assert sum("errors" in line for line in lines) == 6
    assert lines[-1]["least_squares_loss"] == pytest.approx((2 + 1) / 5)
    curves = result["curves"]
    assert set(curves) >= {MODEL, "least squares", "averaging", "3-NN"}
    assert all(len(curve["mean"]) == 5 for curve in curves.values())
    # A model that was not trained long enough must be reported as such.
    verdicts = {check["name"]: check["passed"] for check in result["checks"]}
    assert not verdicts["Transformer against least squares at k = 4"]
    assert not result["passed"]


def test_the_model_of_a_run_is_loaded_again(whole, tmp_path):
    folder, result = whole
    with as_alone():
        setup, params = garg_linear.load(folder)
        prompt = garg_linear.evaluation_prompt(setup)
        errors = training.prefix_errors(setup.model, params, prompt).mean(axis=0)
    expected = np.array(result["curves"][MODEL]["mean"])
    np.testing.assert_allclose(errors / setup.config.dim, expected, rtol=1e-5)
    with as_alone():
        kept = garg_linear.snapshots(setup, folder)
    assert [*kept] == [5, 10, 15, 30, 60, 120]
    jax.tree.map(lambda a, b: np.testing.assert_array_equal(a[0], b), kept[120], params)
    empty = tmp_path / "empty"
    empty.mkdir()
    shutil.copy(folder / "config.json", empty)
    with pytest.raises(ValueError, match="^run: expected a run with a checkpoint"):
        garg_linear.load(empty)
    with pytest.raises(ValueError, match="^run: expected a run with snapshots, got"):
        garg_linear.snapshots(setup, empty)
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
        assert process.poll() is None, processes.finish(process, 300)
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
        victim = processes.program("garg_linear", words)
        metrics = wait_for_lines(victim, tmp_path, stopped_after + 1)
        victim.send_signal(end)
        status, out, err = processes.finish(victim, 300)
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

    victim = processes.program("garg_linear", words)
    killed_after = random.SystemRandom().randint(stopped_after + 1, 20)
    wait_for_lines(victim, tmp_path, killed_after)
    victim.send_signal(signal.SIGKILL)
    _, out, _ = processes.finish(victim, 300)
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


def config(*options, preset="cpu"):
    flags = garg_linear.Switches()
    return parse(PRESETS, ["--preset", preset, *options], flags=flags).config


def test_the_published_recipe_to_the_letter():
    """Garg et al. 2022, Appendix A.2, and the published configurations by task."""
    paper = PRESETS["paper"]
    sizes = (paper.steps, paper.batch_size, paper.dim, paper.num_points)
    assert sizes == (500_001, 64, 20, 41)
    rule = paper.optimizer
    assert (rule.name, rule.learning_rate) == ("adam", 1e-4)
    assert (rule.clip_norm, rule.warmup_steps) == (0, 0)
    assert int(paper.curriculum.dims(29_999)) == 19
    assert int(paper.curriculum.points(30_000)) == 41
    model = set_up(paper, 1).model
    assert (model.num_layers, model.num_heads) == (12, 8)
    assert (model.width, model.num_positions) == (256, 202)
    for task in ("relu_network", "decision_tree"):
        found = config("--task", task, preset="paper")
        assert (found.num_points, found.task) == (101, task)
        assert found.curriculum.points == Ramp(26, 101, 5, 2000)
        assert found.curriculum.dims == paper.curriculum.dims
    sparse = config("--task", "sparse", preset="paper")
    assert sparse == dataclasses.replace(paper, task="sparse")
    assert config("--task", "linear", preset="paper") == paper
    smaller = config("--task", "decision_tree", "--dim", "3")
    assert (smaller.dim, smaller.num_points) == (3, 16)


def a_checkpoint(path, **sizes):
    """A file of the published layout with random weights."""
    from icltheory.models import GPT2
    from icltheory.models._safetensors import write_safetensors
    from icltheory.models.garg_checkpoint import _stored

    rng, model = np.random.default_rng(0), GPT2(**sizes)
    X, y = np.zeros((1, 1, model.dim)), np.zeros((1, 1))
    shapes = _stored(jax.eval_shape(model.init, jax.random.key(0), X, y)["params"])
    drawn = {n: np.float32(0.3 * rng.standard_normal(s)) for n, s in shapes.items()}
    write_safetensors(path, drawn)
    return path


def test_a_published_checkpoint_is_evaluated_as_one_of_ours(tmp_path, monkeypatch):
    sizes = {"dim": 2, "num_positions": 12, "width": 8, "num_layers": 1}
    path = a_checkpoint(tmp_path / "model.safetensors", **sizes, num_heads=2)
    seen = []

    def report(*args):
        seen.extend(args)
        return Report({"curves": {}})

    monkeypatch.setattr(garg_published, "report", report)
    args = [str(path), "--num-heads", "2", "--eval-prompts", "32"]
    args += ["--output", str(tmp_path)]
    result = garg_published.main(args)
    stored = (run_folder(tmp_path) / "result.json").read_text()
    assert json.loads(stored) == result
    assert result["checkpoint"] == str(path)
    setup, params, records = seen
    assert (setup.model.width, setup.model.num_positions) == (8, 12)
    assert (setup.config.num_points, setup.config.eval_prompts) == (5, 32)
    assert setup.task.dim == 2
    assert params["read_in"]["kernel"].shape == (1, 2, 8)
    assert records == []
    with pytest.raises(ValueError, match="expected at least 22 positions for prompts"):
        garg_published.main([*args, "--task", "decision_tree"])
    assert len(list((tmp_path / "garg_linear").iterdir())) == 1
    with pytest.raises(ValueError, match="checkpoint: expected a file, got None"):
        garg_published.main([])


def test_figures_show_what_they_are_given():
    curves = {MODEL: Curve(MEAN, MEAN - 0.1, MEAN + 0.1)}
    curves["optimum"] = Curve(MEAN / 2, exact=True)
    (axes,) = garg_linear.draw_errors(curves, "title", dim=1).axes
    lines = {line.get_label(): line for line in axes.get_lines()}
    np.testing.assert_array_equal(lines[MODEL].get_xdata(), [0, 1, 2])
    np.testing.assert_array_equal(lines[MODEL].get_ydata(), MEAN)
    assert lines[MODEL].get_linestyle() == "-"
    assert lines["optimum"].get_linestyle() == "--"
    (band,) = axes.collections
    heights = band.get_paths()[0].vertices[:, 1]
    assert heights.min() == pytest.approx(0.0, abs=1e-6)  # 0 is below a log axis
    assert heights.max() == pytest.approx(1.1)
    panels = {f"s{i}": {"a": Curve(MEAN * i)} for i in range(7)}
    shown = garg_linear.draw_settings(panels, "title").axes
    shown = [axes for axes in shown if axes.get_visible()]
    assert [axes.get_title() for axes in shown] == list(panels)
    np.testing.assert_array_equal(shown[3].get_lines()[0].get_ydata(), MEAN * 3)
    # More lines than colours are all drawn.
    many = {"panel": {f"line {i}": Curve(MEAN + i) for i in range(9)}}
    first = garg_linear.draw_settings(many, "title").axes[0]
    assert len(set(first.get_legend_handles_labels()[1])) >= 9
    weights = np.stack([np.eye(2), np.full((2, 2), 0.5)])
    axes = garg_linear.draw_attention(weights, ["x1", "y1"], "title").axes
    assert [one.get_title() for one in axes[:2]] == ["layer 0", "layer 1"]
    np.testing.assert_array_equal(axes[1].get_images()[0].get_array(), weights[1])
    assert axes[1].get_images()[0].get_clim() == (0, 0.5)


def test_settings_and_curves_are_named_in_plain_words():
    assert garg_linear.setting_title("scale-x=0.333") == "inputs times 0.333"
    assert garg_linear.setting_title("scale-y=2") == "weights times 2"
    titles = {garg_linear.setting_title(name) for name in shifts.GARG_SHIFTS}
    assert len(titles) == len(shifts.GARG_SHIFTS)
    assert not any("_" in title or "=" in title for title in titles)
    title = garg_linear.curve_title
    assert title("ridge (1)") == "ridge, penalty 1"
    assert title("best gradient steps (3)") == "best gradient steps, L = 3"
    assert title("two-layer network (100)") == "two-layer network (100)"
