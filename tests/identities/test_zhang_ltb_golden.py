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
PROBLEM = LinearPopulation(*POPULATION)
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
    models = parts, parts.to_ltb(), parts.to_lsa()
    return {
        "best": found.model,
        "least": found.risk,
        "risk": reg.risk(gd, problem, M),
        "gradient": jax.grad(reg.risk)(gd, problem, M),
        "predictions": (found.model.predict(*PROMPT), gd.predict(*PROMPT)),
        "risks": [reg.risk(model, problem, M) for model in models],
        "models": models,
        "gap": reg.gap(problem, M),
    }


def values(c=(0.0, 0.0)):
    return evaluate(GD, reg.EffectiveParameters(c=np.array(c), **VALUES), PROBLEM)


def check(measured, name, values, texts):
    """Compares values with printed ones, to half of the last printed digit."""
    for value, text in zip(np.ravel(values), texts.split(), strict=True):
        error = (value - float(text)) * 10 ** len(text.split(".")[1])
        measured(f"{name} in units of the last digit", error, below=0.5001)


@pytest.mark.statement("Zhang: Section 5")
def test_the_oracle_knows_the_example(measured):
    white = Whitened.of(POPULATION, M)
    check(measured, "tau", white.tau, "2.950000000000")
    phi = np.linalg.eigvalsh(white.Phi)
    check(measured, "phi", phi, "0.341287949908 2.358712050092")
    check(measured, "squared norm of beta*", white.m @ white.m, "4.000000000000")


def rank_one(found):
    """The printed bound gives up the largest phi too."""
    white = Whitened.of(POPULATION, M)
    phi, omega = (np.linalg.eigvalsh(A)[1] for A in (white.Phi, white.Omega))
    return found["gap"].rank_one + phi**2 / omega


NUMBERS = {
    "best: smallest risk": (lambda f: f["least"], "1.521361743930"),
    "best: entry of Gamma*": (
        lambda f: f["best"].Gamma,
        "0.268887121673 -0.018524582495 -0.018524582495 0.289376432614",
    ),
    "best: beta": (lambda f: f["best"].beta, "1.000000000000 -2.000000000000"),
    "best: its prediction": (lambda f: f["predictions"][0], "-3.421317303644"),
    "a step: risk": (lambda f: f["risk"], "3.491841666667"),
    "a step: gradient in beta": (
        lambda f: f["gradient"].beta,
        "-1.035666666667 1.930916666667",
    ),
    "a step: gradient in Gamma": (
        lambda f: f["gradient"].Gamma,
        "-0.686833333333 3.319250000000 0.622500000000 -1.210833333333",
    ),
    "a step: prediction": (lambda f: f["predictions"][1], "-1.386666666667"),
    "lower, 2 / (3M + 2)": (lambda f: f["gap"].lower_proof_route, ".7272727273"),
    "lower, 1 / (M + 1)": (lambda f: f["gap"].lower, "1.0000000000"),
    "lower, instance": (lambda f: f["gap"].lower_instance, "1.3818075354"),
    "lower, kappa": (lambda f: gap_lower_bounds(POPULATION, M)["kappa"], ".8874907077"),
    "upper, labels": (lambda f: f["gap"].labels, "2.9589532710"),
    "upper, values": (lambda f: f["gap"].values, "2.8647958934"),
    "upper, zero start": (lambda f: f["gap"].zero_start, "2.0786884654"),
    "upper, best GD-0": (lambda f: f["gap"].zero_start + f["least"], "3.600050209364"),
    "upper, rank one": (rank_one, "3.0286382561"),
}


@pytest.mark.statement("Zhang: Theorem 5.2", case="best: *")
@pytest.mark.statement("Zhang: Section 5", case="a step: *")
@pytest.mark.statement("Zhang: Theorem 4.1", case="*er, *")
@pytest.mark.slow
@pytest.mark.parametrize("name", NUMBERS)
def test_the_numbers_of_the_example(name, measured):
    number, texts = NUMBERS[name]
    check(measured, name, number(values()), texts)


@pytest.mark.statement("Zhang: Appendices B and D, risk")
@pytest.mark.slow
@pytest.mark.parametrize(
    ("c", "text"),
    [((0.5, -1.0), "8.941184895833"), ((0.0, 0.0), "13.265059895833")],
)
def test_a_block_and_the_same_without_its_mlp(c, text, measured):
    found = values(c)
    same = 2 if any(c) else 3  # without c the LSA is the same function
    for risk, model in zip(found["risks"][:same], found["models"], strict=False):
        check(measured, "risk", risk, text)
        if isinstance(model, reg.EffectiveParameters):
            continue
        weights = [np.asarray(W) for W in jax.tree.leaves(model)]
        exact = oracles.exact_risk(
            lambda X, y, x, W=weights: oracles.block_predictions(W, X, y, x),
            *POPULATION,
            M,
        )
        check(measured, "exact expectation of the tokens", exact, text)
        measured("relative error", risk / exact - 1)
