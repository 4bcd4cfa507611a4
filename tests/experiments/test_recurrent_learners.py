"""The experiment recurrent_learners: its search, its layers, its checks and figures."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments import recurrent_learners as one
from experiments.recurrent_learners import Config
from icltheory import regression as reg
from icltheory.statistics import Estimate

SMALL = """
    --preset cpu --dim 2 --num-examples 5 --persistences 0.8 1.0 --layer-steps 60
    --softmax-steps 20 --num-prompts 256 --width 16 --num-layers 1
"""
CONFIG = Config(dim=2, num_examples=4, persistences=(0.8, 1.0))


def test_a_layer_with_keys_of_one_size_is_the_learner():
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((2, 5, 3)), rng.standard_normal((2, 5))
    weights = {"K": jnp.sqrt(0.2) * jnp.eye(3), "gate": jnp.asarray(1.0)}
    for name, kind in one.KINDS.items():
        found = one.Layer(3, name).apply({"params": weights}, X, y)
        rule = kind(0.2, jax.nn.sigmoid(1.0))
        expected = [rule.predict_prefixes(*prompt) for prompt in zip(X, y, strict=True)]
        np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-12)


@pytest.mark.slow
def test_the_search_has_the_least_mean_risk():
    source = one.drift(CONFIG, 0.8)
    rule, least = one.tuned(reg.DeltaRule, source, 4)
    curve = reg.estimate_risk(rule, source, range(5))
    assert least == pytest.approx(float(curve.mean.mean()), rel=1e-9)
    for change in ((0.02, 0.0), (-0.02, 0.0), (0.0, 0.02), (0.0, -0.02)):
        other = reg.DeltaRule(rule.step_size + change[0], rule.gate + change[1])
        assert reg.estimate_risk(other, source, range(5)).mean.mean() > least


@pytest.mark.slow
def test_a_run_reports_and_stores_what_it_found(small_run):
    _, result, pictures = small_run(one, SMALL)
    assert pictures == {"risks", "gates"}
    assert len(result["gates"]) == 4
    for own in result["sources"].values():
        bayes = own["curves"]["Bayes"]["mean"]
        assert bayes[0] == pytest.approx(2.25)
        assert bayes[-1] < own["curves"]["gated delta rule"]["mean"][-1]


def made_up(gate=0.9, bayes=0.5):
    def estimate(mean, how="exact"):
        return Estimate(np.full(5, mean), np.full(5, 0.01), np.inf, how)

    rules = {name: reg.DeltaRule(0.1, 0.9) for name in one.LOOKS if "rule" in name}
    rules |= {n: reg.GatedLinearAttention(0.1, 0.9) for n in list(one.LOOKS)[:2]}
    drawn = {n: Estimate(np.float64(1.0), np.float64(0.01), 1.0) for n in rules}
    curves = {
        n: estimate(1.0) if n in rules else estimate(1.0, "simulated")
        for n in one.LOOKS
    }
    curves["Bayes"] = estimate(bayes, "exact given the inputs")
    source = {"rules": rules, "curves": curves, "simulated": drawn}
    trained = [{"gate": gate, "size": 0.1, "risk": 2.0, "error": 0.01}]
    row = {"kind": "delta rule", "persistence": 0.8, "predicted": 0.9, "size": 0.1}
    rows = [row | {"least": 2.0, "trained": trained}]
    rows.append(rows[0] | {"kind": "linear attention"})
    return {"one task": source, "tasks that drift": source}, rows


@pytest.mark.parametrize(
    ("given", "failed"),
    [({}, 0), ({"gate": 0.8}, 1), ({"gate": float("nan")}, 1), ({"bayes": 1.1}, 2)],
)
def test_checks_fail_where_something_is_wrong(given, failed):
    checks = one.checks(CONFIG, *made_up(**given))
    assert sum(not check.passed for check in checks) == failed


def test_what_was_measured_is_said_and_drawn():
    found, rows = made_up(gate=0.91)
    said = one.findings(CONFIG, found, rows)
    assert said[0].startswith("one task, 4 examples: Bayes has 0.500; above it are")
    assert said[-1].endswith("at most 0.010.")
    risks, gates = one.tables(CONFIG, found, rows)
    assert [len(table.rows) for table in (risks, gates)] == [7, 2]
    left, right = one.draw_risks(CONFIG, found).axes
    assert (left.get_title(), right.get_title()) == tuple(found)
    line = {n: {"persistence": [0.8, 1.0], "gate": [0.7, 1.0]} for n in one.KINDS}
    (axes,) = one.draw_gates(line, rows).axes
    drawn = {line.get_label(): line for line in axes.get_lines()}
    np.testing.assert_array_equal(drawn["delta rule, predicted"].get_ydata(), [0.7, 1])
    np.testing.assert_array_equal(drawn["delta rule, trained"].get_ydata(), [0.91])
