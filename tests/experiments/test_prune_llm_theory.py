"""What the surrogate's norms say of the accuracy: within rates, or not at all."""

import types

import numpy as np
import pytest
import scipy.stats

from experiments.prune_llm import theory
from experiments.prune_llm.theory import rank_correlation, theory_finding, within_rates

RATES = (0.0, 0.25, 0.5, 0.9)


def measured(monkeypatch, sizes, changes, cosine=0.9):
    """A study of made-up sizes of the update and changes of the accuracy."""
    layers = tuple(range(len(sizes)))
    rows = [
        {"layer": layer, "rate": rate, "G_norm": 3.0 * size, "cosine": cosine}
        for layer in layers
        for rate, size in zip(RATES, (1.0, *sizes[layer]), strict=True)
    ]
    accuracy = 0.8 + np.concatenate([np.zeros((len(layers), 1)), changes], axis=1)
    monkeypatch.setattr(
        theory,
        "panel",
        lambda *args: types.SimpleNamespace(accuracy=accuracy, unpruned=0.8),
    )
    config = types.SimpleNamespace(rates=RATES, level=0.95)
    case = {"task": "toy", "shots": 4, "seed": 0, "order": 0}
    about = {"case": case, "module": "attn", "rows": rows}
    return types.SimpleNamespace(
        config=config, layers=layers, rates=lambda module: RATES
    ), about


def falling(seed, layers=8):
    """Size and accuracy fall with the rate, and have nothing else in common."""
    rng = np.random.default_rng(seed)
    trend = np.array([0.9, 0.6, 0.2])
    sizes = trend + 0.05 * rng.random((layers, 3))
    return sizes, 0.1 * (trend - 1) + 0.005 * rng.random((layers, 3))


def test_what_falls_with_the_rate_alone_is_no_correlation(monkeypatch):
    sizes, changes = falling(0)
    pooled = scipy.stats.spearmanr(sizes.ravel(), changes.ravel()).statistic
    assert pooled > 0.85  # what was reported, whatever the layers do
    found = within_rates(*measured(monkeypatch, sizes, changes))
    assert found.low < 0 < found.high
    assert abs(found.correlation) < 0.5
    assert (found.smaller, found.layers, found.rates) == (1.0, 8, 3)


@pytest.mark.parametrize("sign", [1, -1])
def test_layers_that_agree_within_every_rate_are_found(monkeypatch, sign):
    sizes, _ = falling(1)
    changes = -0.1 + sign * 0.01 * (sizes - sizes.mean(axis=0))
    found = within_rates(*(given := measured(monkeypatch, sizes, changes)))
    assert found.correlation == pytest.approx(sign, abs=1e-12)
    assert found.low * found.high > 0
    (sentence,) = theory_finding(*given)
    assert f"within each of 3 rates, is {sign:+.2f} (95 % interval" in sentence


def test_one_rate_is_spearmans_correlation():
    a, b = np.random.default_rng(0).normal(size=(2, 9, 1))
    found = rank_correlation(a, b, 0.95)[0]
    assert found == pytest.approx(scipy.stats.spearmanr(a[:, 0], b[:, 0]).statistic)


def test_the_interval_covers_none_where_there_is_none():
    """Layers are independent and the rates of one are not, as in a model."""
    rng, runs, hits = np.random.default_rng(0), 100, 0
    for _ in range(runs):
        sizes, changes = (
            0.9 * rng.normal(size=(4, 1)) + 0.4 * rng.normal(size=(4, 7))
            for _ in range(2)
        )
        _, low, high = rank_correlation(sizes, changes, 0.95)
        hits += low <= 0 <= high
    assert hits / runs > 0.95 - 4 * (0.0475 / runs) ** 0.5


def test_a_surrogate_far_from_the_model_says_nothing(monkeypatch):
    given = measured(monkeypatch, *falling(0), cosine=0.4)
    found = within_rates(*given)
    assert found.correlation is found.low is found.high is None
    (sentence,) = theory_finding(*given)
    assert "not applicable: cosine of the surrogate to attention +0.40" in sentence
    assert "at least 0.71 needed" in sentence
    given[1]["rows"][3]["cosine"] = None
    assert "cosine" in within_rates(*given).reason
    assert theory_finding(given[0], None) == []


def test_few_layers_or_equal_ones_have_no_correlation(monkeypatch):
    sizes, changes = falling(0)
    few = within_rates(*measured(monkeypatch, sizes[:3], changes[:3]))
    assert few.reason.startswith("3 layers at 3 rates, at least 4 layers")
    equal = within_rates(*measured(monkeypatch, sizes, np.zeros_like(changes)))
    assert equal.reason == "all layers are equal at every rate"
