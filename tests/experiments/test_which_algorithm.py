"""The experiment that names algorithms end to end."""

import dataclasses
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from experiments import which_algorithm
from experiments.which_algorithm import POSTERIOR, RIDGE
from icltheory import microscope as ms
from icltheory.statistics import Estimate
from tests.microscope.test_language import TASK

TINY = {"dim": 2, "num-points": 5, "num-layers": 1, "width": 8, "num-heads": 2}
TINY |= {"steps": 20, "chunk-steps": 10, "checkpoint-every": 10}
TINY |= {"optimizer.warmup-steps": 5}
SMALL = " ".join(
    f"--{part}.{name} {value}"
    for part in ("gpt2", "large", "tasks")
    for name, value in TINY.items()
)
SMALL += """
    --large.dim 3 --gpt2.snapshots 0 20 --large.snapshots 0 20 --layers 1
    --linear-steps 20 --softmax-steps 20 --gated-steps 20 --pools 1 3 --shots 1 4
    --num-prompts 64
"""


@pytest.mark.slow
def test_a_small_run_reports_every_model(small_run):
    _, result, figures = small_run(which_algorithm, SMALL)
    assert figures == {"map", "along", "pools"}
    assert all(check["passed"] for check in result["checks"])
    first = result["models"][0]
    assert first["closest"] == "gradient descent (steps 3, step size 0.35)"
    assert first["share"] < 1e-20
    names = ["three steps by hand", "linear attention, L = 1"]
    names += [f"softmax attention, {n}" for n in ("1 head", "2 heads", "4 heads")]
    names += ["gated linear attention", "gated delta rule"]
    names += ["transformer, d = 2", "transformer, d = 3", "transformer, 1 task"]
    names += ["transformer, 3 tasks", "transformer, new tasks"]
    assert [row["model"] for row in result["models"]] == names
    along = result["along"]
    assert len(along) == 6
    course = along["transformer, d = 3: along training"]
    assert [row["model"] for row in course] == [0, 20]
    assert len(along["transformer, d = 2: a linear probe"]) == 2
    # Two rules at two lengths for two pools, and without a pool.
    assert len(result["pools"]) == 2 * 2 * 3
    assert len(result["claims"]) == 1 + 3 + 2 + 2 + 4 + 3


def test_a_language_model_is_compared_with_predictors(small_run, tmp_path, monkeypatch):
    bayes = ms.label_rules()["naive Bayes"]

    class Subject:
        def __init__(self, config, run, folder):
            assert (config.tasks, config.most_shots, folder) == (("sst2",), 4, tmp_path)
            self.model = lambda task: np.log(bayes(task, "test"))

        def task(self, name, prompt, scoring, draw):
            turned = TASK.demonstrations[draw:] + TASK.demonstrations[:draw]
            return dataclasses.replace(TASK, demonstrations=turned)

    monkeypatch.setattr(which_algorithm, "LanguageSubject", Subject)
    words = f"""
        --preset language --language.tasks sst2 --language.shots 4
        --language.questions 3 --language.draws 2 --task-folder {tmp_path}
    """
    _, result, figures = small_run(which_algorithm, words)
    assert figures == {"language"}
    own = result["language"]["sst2"]
    assert own["naive Bayes"] == [0, 0, 0]
    assert own["copy the last"][0] > 0
    right = bayes(TASK, "test").argmax(axis=1) == [e.label for e in TASK.test]
    assert own["accuracy"][0] == pytest.approx(np.mean(right))
    each = [own[f"label {i}"][0] for i in (1, 2, 3, 4)]
    np.testing.assert_allclose(own["a label"][0], np.mean(each))
    np.testing.assert_allclose(
        own["last less others"][0], each[-1] - np.mean(each[:-1])
    )
    # A label that is shown becomes more likely.
    assert own["a label"][1] > 0
    assert [claim["held"] for claim in result["claims"]][0] is False


def test_models_that_pass_from_pool_to_ridge_are_named():
    def analysis(*names, farther):
        second = Estimate(farther, 0.1, 100)
        pairs = zip(names, (Estimate(0.0, 0.0, 100), second), strict=True)
        candidates = [SimpleNamespace(name=n, farther=e) for n, e in pairs]
        return SimpleNamespace(candidates=candidates)

    pools = {
        1: analysis(POSTERIOR, RIDGE, farther=1.0),
        4: analysis(RIDGE, POSTERIOR, farther=0.1),
        16: analysis(RIDGE, POSTERIOR, farther=1.0),
        0: analysis(RIDGE, POSTERIOR, farther=0.0),
    }
    found: Any = SimpleNamespace(analyses=lambda: [*pools.items()])
    claim = which_algorithm.change_of_algorithm(found)
    assert claim.held
    assert claim.measured == "closer to the pool posterior at [1], to ridge at [16]"
