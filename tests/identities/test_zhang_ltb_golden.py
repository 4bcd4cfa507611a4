"""The numbers of a worked example (d = 2, M = 3), to all of their printed digits."""

import jax
import numpy as np
import pytest

from icltheory import regression as reg
from icltheory.regression import LinearPopulation
from tests import oracles
from tests.oracles_ltb import Population, Whitened, gap_lower_bounds

H = np.array([[2.0, 0.5], [0.5, 1.0]])
PSI = np.array([[1.0, 0.2], [0.2, 0.5]])
MEAN = np.array([1.0, -2.0])
POPULATION = Population(H, MEAN, PSI, 0.25)
PROBLEM = LinearPopulation(H, MEAN, PSI, 0.25)
M = 3
GD = reg.GDBeta(np.array([0.3, -0.4]), np.array([[0.2, 0.1], [-0.05, 0.3]]))
VALUES = {
    "p": np.array([0.1, -0.3]),
    "v": 0.7,
    "U": np.array([[0.2, -0.1], [0.05, 0.4]]),
    "u": np.array([-0.2, 0.15]),
}
PROMPT = (
    np.array([[1.0, 0.0], [0.0, 1.0], [1.0, -1.0]]),
    np.array([1.0, -2.0, 2.5]),
    np.array([0.5, 2.0]),
)


@jax.jit
def evaluate(gd, parts, problem):
    """All that the library computes here."""
    found = reg.optimum(reg.GDBeta, problem, M)
    best, least = found.model, found.risk
    models = parts, parts.to_ltb(), parts.to_lsa()
    return {
        "best": best,
        "least": least,
        "risk": reg.risk(gd, problem, M),
        "gradient": jax.grad(reg.risk)(gd, problem, M),
        "predictions": (best.predict(*PROMPT), gd.predict(*PROMPT)),
        "risks": [reg.risk(model, problem, M) for model in models],
        "models": models,
        "gap": reg.gap(problem, M),
    }


def values(c=(0.0, 0.0)):
    return evaluate(GD, reg.EffectiveParameters(c=np.array(c), **VALUES), PROBLEM)


@pytest.fixture
def printed(measured):
    """Compares values with printed ones, to half of the last printed digit."""

    def check(name, values, texts):
        for value, text in zip(np.ravel(values), texts.split(), strict=True):
            error = (value - float(text)) * 10 ** len(text.split(".")[1])
            measured(f"{name} in units of the last digit", error, below=0.5001)

    return check


@pytest.mark.statement("Zhang: Section 5")
def test_the_oracle_knows_the_example(printed):
    white = Whitened.of(POPULATION, M)
    printed("tau", white.tau, "2.950000000000")
    low, high = np.linalg.eigvalsh(white.Phi)
    printed("phi_2", low, "0.341287949908")
    printed("phi_1", high, "2.358712050092")
    printed("squared norm of beta*", white.m @ white.m, "4.000000000000")


@pytest.mark.statement("Zhang: Theorem 5.2")
@pytest.mark.slow
def test_the_best_gd_beta(printed):
    found = values()
    printed("smallest risk", found["least"], "1.521361743930")
    entries = "0.268887121673 -0.018524582495 -0.018524582495 0.289376432614"
    printed("entry of Gamma*", found["best"].Gamma, entries)
    printed("its prediction", found["predictions"][0], "-3.421317303644")
    np.testing.assert_array_equal(found["best"].beta, MEAN)


@pytest.mark.statement("Zhang: Section 5")
@pytest.mark.slow
def test_a_gd_beta(printed):
    found = values()
    printed("risk", found["risk"], "3.491841666667")
    slope = found["gradient"]
    printed("gradient in beta", slope.beta, "-1.035666666667 1.930916666667")
    entries = "-0.686833333333 3.319250000000 0.622500000000 -1.210833333333"
    printed("gradient in Gamma", slope.Gamma, entries)
    printed("prediction", found["predictions"][1], "-1.386666666667")


@pytest.mark.statement("Zhang: Appendices B and D, risk")
@pytest.mark.slow
@pytest.mark.parametrize(
    ("c", "text"),
    [((0.5, -1.0), "8.941184895833"), ((0.0, 0.0), "13.265059895833")],
)
def test_a_block_and_the_same_without_its_mlp(c, text, printed, measured):
    found = values(c)
    same = 2 if any(c) else 3  # without c the LSA is the same function
    for risk, model in zip(found["risks"][:same], found["models"], strict=False):
        printed("risk", risk, text)
        if isinstance(model, reg.EffectiveParameters):
            continue
        weights = [np.asarray(W) for W in jax.tree.leaves(model)]
        exact = oracles.exact_risk(
            lambda X, y, x, W=weights: oracles.block_predictions(W, X, y, x),
            *POPULATION,
            M,
        )
        printed("exact expectation of the tokens", exact, text)
        measured("relative error", risk / exact - 1)


@pytest.mark.statement("Zhang: Theorem 4.1")
@pytest.mark.slow
def test_the_bounds_on_the_gap(printed):
    found = values()
    gap = found["gap"]
    printed("lower, 2 / (3M + 2)", gap.lower_proof_route, ".7272727273")
    printed("lower, 1 / (M + 1)", gap.lower, "1.0000000000")
    printed("lower, instance", gap.lower_instance, "1.3818075354")
    kappa = gap_lower_bounds(POPULATION, M)["kappa"]
    printed("lower, kappa", kappa, ".8874907077")
    printed("upper, labels", gap.labels, "2.9589532710")
    printed("upper, values", gap.values, "2.8647958934")
    printed("upper, zero start", gap.zero_start, "2.0786884654")
    printed("best GD-0", gap.zero_start + found["least"], "3.600050209364")
    # the printed rank-one bound gives up the largest phi too
    white = Whitened.of(POPULATION, M)
    largest = np.linalg.eigvalsh(white.Phi)[1] ** 2 / np.linalg.eigvalsh(white.Omega)[1]
    printed("upper, rank one", gap.rank_one + largest, "3.0286382561")
