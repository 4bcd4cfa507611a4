"""The condition numbers of a checkpoint: the run, its claims, its picture."""

import json
import math

import jax
import numpy as np
import pytest

from experiments import condition_numbers as experiment
from experiments.condition_numbers.drawing import (
    ConditionCurve,
    condition_numbers_along_depth,
)
from experiments.condition_numbers.report import (
    choices,
    claims,
    spread_of_squares,
)
from icltheory.bridge.clipping import clip_module
from icltheory.bridge.decoder import Decoder
from icltheory.bridge.export import save_checkpoint
from icltheory.bridge.families import read_architecture
from icltheory.bridge.model import LanguageModel
from icltheory.bridge.spectra import ConditionNumber

CONFIG = {
    "model_type": "llama",
    "vocab_size": 13,
    "hidden_size": 16,
    "intermediate_size": 40,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}


@pytest.fixture(scope="module")
def model():
    decoder = Decoder(read_architecture(CONFIG))
    return LanguageModel(decoder, decoder.init(jax.random.key(2)), config=CONFIG)


def run_of(output):
    (folder,) = (output / "condition_numbers").iterdir()
    return folder


def row(layer, value, *, matrix="W_Q", null=2.0, resolved=True):
    module = "attn" if matrix in ("W_Q", "W_K") else "mlp"
    fields = (layer, module, matrix, value, null, value / null, (4, 4), "float32")
    return ConditionNumber(*fields, 1e6, resolved, np.ones(4))


# --- the run


@pytest.mark.slow
def test_a_run_writes_everything_it_promises_and_resumes(model, tmp_path, monkeypatch):
    checkpoint = save_checkpoint(model, tmp_path / "model")
    output = ["--output", str(tmp_path / "runs")]
    result = experiment.main(["--checkpoint", str(checkpoint), *output])
    folder = run_of(tmp_path / "runs")
    names = {
        "config.json",
        "metrics.jsonl",
        "result.json",
        "report.html",
        "timing.json",
        "condition_numbers.png",
        "spectra.png",
    }
    assert {
        path.name for path in folder.iterdir() if path.suffix != ".svg"
    } == names | {"singular_values"}
    assert json.loads((folder / "result.json").read_text()) == result
    assert result["passed"]
    assert (
        len(result["rows"])
        == 3 * 7
        == len(list((folder / "singular_values").iterdir()))
    )
    for found in result["rows"]:
        layer = model.params["layers"][found["layer"]]
        W = np.asarray(layer[found["module"]][found["matrix"]]["weight"], float)
        np.testing.assert_allclose(
            found["condition_number"], np.linalg.cond(W), rtol=1e-9
        )
    # what is there is not computed again
    metrics = (folder / "metrics.jsonl").read_text()
    svd = np.linalg.svd
    monkeypatch.setattr(np.linalg, "svd", None)
    again = experiment.main(["--resume", str(folder)])
    monkeypatch.setattr(np.linalg, "svd", svd)
    assert (folder / "metrics.jsonl").read_text() == metrics
    for part in ("rows", "claims", "choices", "checks"):
        assert again[part] == result[part]


@pytest.mark.slow
def test_a_module_some_layers_and_a_shared_cache(model, tmp_path):
    checkpoint = save_checkpoint(clip_module(model, 2, "mlp", 0.5), tmp_path / "model")
    cache = tmp_path / "cache"
    options = ["--output", str(tmp_path), "--cache", str(cache), "--module", "mlp"]
    options += ["--layers", "2", "0", "--checkpoint", str(checkpoint)]
    result = experiment.main(options)
    assert [found["layer"] for found in result["rows"]] == [2] * 3 + [0] * 3
    assert [found["resolved"] for found in result["rows"]] == [False] * 3 + [True] * 3
    assert len(list(cache.iterdir())) == 6
    assert result["claims"][-1]["measured"] == "hidden in 3 of 6 matrices (float32)"
    assert {choice["module"] for choice in result["choices"]} == {"mlp"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (["--layers", "3"], "layer: expected 0 to 2, got 3"),
        (["--layers", "1", "1"], "layers: expected distinct numbers"),
        (["--module", "W_X"], "module: expected one of"),
        (["--top-k", "0"], "top_k: expected at least 1, got 0"),
        (["--dtype", "int8"], "dtype: expected one of"),
        (["--preset", "bert"], "preset: expected one of tiny, gptj, llama2, got bert"),
    ],
)
def test_mistakes_are_named_and_nothing_is_written(change, message, model, tmp_path):
    checkpoint = save_checkpoint(model, tmp_path / "model")
    options = ["--checkpoint", str(checkpoint), "--output", str(tmp_path / "runs")]
    with pytest.raises(ValueError, match=message):
        experiment.main([*options, *change])
    assert not (tmp_path / "runs").exists()


def test_the_usual_checkpoint_is_looked_for_in_the_repository(tmp_path, monkeypatch):
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    monkeypatch.setattr("experiments.condition_numbers.config.ROOT", tmp_path)
    config = experiment.Config()
    assert config.place == config.checkpoint
    (tmp_path / config.checkpoint).mkdir(parents=True)
    assert config.place == str(tmp_path / config.checkpoint)
    assert experiment.Config("some/name").place == "some/name"


# --- claims and choices


def held(rows):
    return {said.claim: said.held for said in claims(tuple(rows))}


def test_growth_with_depth_needs_more_than_chance():
    growing = [row(n, 10.0 + n, matrix=m) for n in range(6) for m in ("W_Q", "W_in")]
    assert held(growing)["condition numbers grow with depth"]
    few = [r for r in growing if r.layer < 3]  # one order of six
    assert not held(few)["condition numbers grow with depth"]
    falling = [row(n, 10.0 - n) for n in range(6)]
    assert not held(falling)["condition numbers grow with depth"]


def test_modules_are_compared_as_they_are_and_over_their_nulls():
    square = [row(n, 100.0 + n, null=100.0) for n in range(3)]
    tall = [row(n, 6.0 + n, matrix="W_in", null=3.0) for n in range(3)]
    said = held(square + tall)
    assert said["condition numbers of the MLP lie below attention's"]
    assert not said["so they do relative to random matrices of their shapes"]
    assert "grow" not in " ".join(held(square[:1]))


def test_the_choice_depends_on_the_aggregate():
    values = {0: (9.0, 1.0), 1: (5.0, 5.0), 2: (4.0, 4.0)}
    rows = tuple(
        row(layer, value, matrix=matrix)
        for layer, pair in values.items()
        for matrix, value in zip(("W_Q", "W_K"), pair, strict=True)
    )
    chosen = choices(experiment.Config(top_k=2), rows)[0]
    assert (chosen["max"], chosen["min"]) == (1, 2)
    assert choices(experiment.Config(top_k=9), rows)[0]["max"] == 2


def test_a_singular_matrix_has_no_number_in_the_results(model, tmp_path):
    layers = list(model.params["layers"])
    W = {"weight": 0 * layers[0]["attn"]["W_O"]["weight"]}
    layers[0] = {**layers[0], "attn": {**layers[0]["attn"], "W_O": W}}
    zero = model.replace(params={**model.params, "layers": tuple(layers)})
    checkpoint = save_checkpoint(zero, tmp_path / "model")
    options = ["--checkpoint", str(checkpoint), "--output", str(tmp_path / "runs")]
    result = experiment.main(options)
    (found,) = (r for r in result["rows"] if (r["layer"], r["matrix"]) == (0, "W_O"))
    assert found["condition_number"] is found["null_ratio"] is None
    assert result["passed"]


def test_the_spread_is_that_of_square_gaussian_matrices():
    low, high = spread_of_squares()
    rng = np.random.default_rng(0)
    s = np.linalg.svd(rng.normal(size=(1000, 32, 32)), compute_uv=False)
    ratios = s[:, 0] / s[:, -1]
    inside = np.mean(
        (ratios / np.median(ratios) > low) & (ratios / np.median(ratios) < high)
    )
    assert abs(inside - 0.9) < 0.04  # four standard errors
    assert math.isclose(low, 0.331, abs_tol=1e-3)


# --- the picture


@pytest.mark.slow
def test_the_figure_draws_what_it_is_given():
    values = [10.0, np.inf, 1000.0]
    curve = ConditionCurve(
        [0, 1, 2], values, 50.0, "8 x 8", [500.0] * 3, [True, True, False]
    )
    wide = curve._replace(values=[4.0, 5.0, 6.0], null=3.0, null_label="8 x 2")
    wide = wide._replace(resolved=[True] * 3, ceiling=[1e9] * 3)
    square = curve._replace(spread=(0.3, 10.0))
    panels = {"attention": {"W_Q": square, "W_K": curve}, "MLP": {"W_in": wide}}
    figure = condition_numbers_along_depth(panels, "a model")
    above, beside, below, _ = figure.axes
    assert [axes.get_title() for axes in (above, below)] == ["attention", "MLP"]
    lines = {line.get_label(): line for line in above.get_lines()}
    np.testing.assert_array_equal(lines["_W_Q"].get_ydata(), [10.0, np.nan, 1000.0])
    names = {text.get_text(): text.get_color() for text in above.texts}
    assert {"$W_Q$", "$W_K$", "random 8 x 8"} == set(names)
    [legend] = figure.legends
    assert "rounding decides" in [text.get_text() for text in legend.get_texts()]
    assert names["$W_Q$"] == lines["_W_Q"].get_color() != names["$W_K$"]
    assert set(lines["_random 8 x 8"].get_ydata()) == {50.0}
    hollow = [line for line in above.get_lines() if line.get_markerfacecolor() == "w"]
    assert [line.get_xdata().tolist() for line in hollow] == [[2], [2]]
    assert set(lines["_rounding of W_Q"].get_ydata()) == {500.0}
    assert sum(line.get_linestyle() == "--" for line in above.get_lines()) == 2
    assert "--" not in {line.get_linestyle() for line in below.get_lines()}
    np.testing.assert_allclose(beside.get_lines()[0].get_ydata()[[0, 2]], [0.2, 20.0])
    assert len(beside.patches) == 1
    assert figure.get_suptitle() == "a model"


def test_several_models_are_points_around_their_geometric_mean():
    values = np.array([[10.0, 20.0], [40.0, 20.0]])
    curve = ConditionCurve([0, 1], values, 5.0, "6 x 6")
    above, beside = condition_numbers_along_depth({"model": {"W_Q": curve}}, "").axes
    np.testing.assert_allclose(above.get_lines()[0].get_ydata(), [20.0, 20.0])
    points = [line.get_ydata() for line in above.get_lines()[1:3]]
    np.testing.assert_allclose(points, values)
    np.testing.assert_allclose(beside.get_lines()[0].get_ydata(), [4.0, 4.0])
    with pytest.raises(ValueError, match="^panels: expected matrices of model, got no"):
        condition_numbers_along_depth({"model": {}}, "")
