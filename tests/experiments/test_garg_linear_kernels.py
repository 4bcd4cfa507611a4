"""Which kernels garg_linear trains with, and that a resumed run keeps them."""

import dataclasses
import json

import pytest

from experiments._frame.run import Run
from experiments.garg_linear import PRESETS, set_up
from experiments.garg_linear.kernels import FILE, with_kernels
from icltheory.kernels import Plan, Tile


@pytest.fixture
def run(tmp_path):
    return Run.create(tmp_path, "garg_linear", "cpu", PRESETS["cpu"])


def planned(run, kernels):
    setup = set_up(dataclasses.replace(PRESETS["cpu"], kernels=kernels), devices=1)
    return with_kernels(setup, run).model.plan


def test_xla_leaves_the_model_alone(run):
    assert planned(run, "xla") is None
    assert not (run.folder / FILE).exists()


def test_tuning_without_a_gpu_takes_the_twins_and_keeps_the_choice(run):
    assert planned(run, "tuned") == Plan.twins()
    assert json.loads((run.folder / FILE).read_text())["plan"] == Plan().to_json()


def test_a_plan_of_another_run_is_read_and_kept(run, tmp_path):
    plan = Plan(residual_mlp=Tile(64, 64))
    other = tmp_path / "other.json"
    other.write_text(json.dumps({"plan": plan.to_json()}))
    assert planned(run, str(other)) == plan
    other.unlink()
    assert planned(run, str(other)) == plan  # resumed: its own file is read
    assert planned(run, "tuned") == plan


def test_a_plan_that_was_timed_in_another_precision_is_refused(run, tmp_path):
    file = tmp_path / "half.json"
    record = {"plan": Plan().to_json(), "problem": {"dtype": "bfloat16"}}
    file.write_text(json.dumps(record))
    message = r"timed in float32, got .*half\.json, which was timed in bfloat16"
    with pytest.raises(ValueError, match=message):
        planned(run, str(file))
    assert not (run.folder / FILE).exists()
    record["problem"]["dtype"] = "float32"
    file.write_text(json.dumps(record))
    assert planned(run, str(file)) == Plan()
    assert json.loads((run.folder / FILE).read_text()) == record


@pytest.mark.parametrize("text", ["{", "[]", '{"plan": {"mlp": 3}}', "{}"])
def test_a_file_without_a_plan_is_named(run, tmp_path, text):
    bad = tmp_path / "bad.json"
    bad.write_text(text)
    with pytest.raises(
        ValueError, match=r"kernels: expected xla, tuned or .*bad\.json"
    ):
        planned(run, str(bad))
    assert bad.read_text() == text
