"""The analysis of Garg's transformer end to end."""

import numpy as np
import pytest

from experiments import garg_algorithm, garg_linear
from tests.experiments.test_which_algorithm import TINY


@pytest.mark.slow
def test_a_transformer_of_garg_is_named_from_its_run_or_trained_anew(small_run):
    sizes = TINY | {"optimizer.warmup-steps": 5, "seeds": 0, "eval-prompts": 64}
    sizes |= {"snapshots": "0.5 1", "curriculum.dims.start": 1}
    sizes |= {"curriculum.dims.end": 2, "curriculum.points.end": 5}
    sizes |= {"curriculum.points.start": 3}
    words = " ".join(f"--{name} {value}" for name, value in sizes.items())
    folder, own, _ = small_run(garg_linear, f"--preset d20 {words}")
    more = "--shots 2 4 --num-prompts 64"
    inner = " ".join(f"--garg.{name} {value}" for name, value in sizes.items())
    _, found, figures = small_run(garg_algorithm, f"{more} {inner} --garg-run {folder}")
    _, again, _ = small_run(garg_algorithm, f"{more} {inner}")
    assert figures == {"along"}
    with pytest.raises(ValueError, match="^garg_run: expected a run of the config"):
        garg_algorithm.main(["--garg-run", str(folder), "--output", str(folder)])
    assert found["models"] == again["models"]
    assert found["along"] == again["along"]
    name = "transformer, d = 2"
    places = {n: [row["model"] for row in rows] for n, rows in found["along"].items()}
    assert places[f"{name}: by examples"] == [2, 4]
    assert places[f"{name}: along training"] == [10, 20]
    risk = found["risks"][name]["risk"]
    error = own["curves"]["Transformer"]["mean"][4] * 2
    assert abs(risk[0] - error) < 5 * np.hypot(risk[1], error * 0.3)
    assert len(found["claims"]) == 3  # along two views of the layers, too


def test_impossible_configs_are_refused_in_one_line():
    with pytest.raises(ValueError, match="^shots: expected numbers from 1 to 40, got"):
        garg_algorithm.Config(shots=(10, 41))
