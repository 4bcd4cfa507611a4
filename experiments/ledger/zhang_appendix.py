"""Zhang, Wu and Bartlett: assumption, Definition A.1, Appendix H, high probability."""

import functools

from experiments.ledger.others import ZHANG
from experiments.ledger.statement import Statement

__all__ = ["APPENDIX"]

_say = functools.partial(Statement, ZHANG)
FILE = "test_zhang_appendix_h.py"
LEMMAS = "regression#lemmas-of-appendix-h"
LIKELY = "rates#the-bayes-risk-with-high-probability"

APPENDIX = (
    _say(
        "Assumption 3.1",
        "Gaussian inputs and tasks, tasks of any mean, Gaussian noise",
        "exact",
        "as a definition; H and Psi may be singular",
        ("regression.LinearPopulation",),
        (f"{FILE}::test_tasks_of_a_singular_*",),
        evidence="simulation",
    ),
    _say(
        "Definition A.1",
        "x = H^(1/2) z and w = beta* + Psi^(1/2) xi with standard normal z and xi",
        "exact",
        "the risk of a model is that of the whitened model in the whitened problem",
        ("regression.risk",),
        (f"{FILE}::test_risk_is_that_of_*", f"{FILE}::test_tasks_of_a_singular_*"),
        evidence="numerical",
    ),
    _say(
        "Lemma 6.1, high probability",
        "the Bayes risk given X is of the order sum min(phi_i, s^2 / M), with "
        "probability 1 - exp(-Omega(M)) over X",
        "conditional",
        "tr(H Psi) <= c s^2; constants 1/3 (for any c) and 107 + 16 c, probability at "
        "least 1 - exp(-.15 M) - exp(-M) - exp(-M / 32)",
        ("regression.orders.rates",),
        (
            "test_zhang_high_probability.py::test_drawn_inputs_*",
            "test_zhang_high_probability.py::test_probabilities_*",
            "test_zhang_high_probability.py::test_each_tail_*",
            "test_zhang_high_probability.py::test_without_noise_*",
        ),
        evidence="proof",
        source=LIKELY,
    ),
    _say(
        "Corollary 6.2, high probability",
        "the best GD-beta and LTB match the Bayes risk given X up to a constant",
        "conditional",
        "tr(H Psi) <= c s^2; R_min - s^2 <= 3 (1 + 2c) times the Bayes excess given X, "
        "with probability at least 1 - exp(-.15 M)",
        ("regression.orders.rates",),
        ("test_zhang_high_probability.py::test_best_step_*",),
        evidence="proof",
        source=LIKELY,
    ),
    _say(
        "Lemma H.1",
        "|tr(A B)| is at most the sum of products of singular values (von Neumann)",
        "true",
        "attained for shared singular vectors",
        ("linalg.trace_bound",),
        (f"{FILE}::test_trace_of_*", f"{FILE}::test_von_neumanns_*"),
        evidence="proof",
        source=LEMMAS,
    ),
    _say(
        "Lemma H.2",
        "products of positive semidefinite matrices (Meenakshi and Rajian)",
        "reconstructed",
        "its bullets are lost; what its proofs use: tr(A B) >= 0, and A B is positive "
        "semidefinite if and only if A and B commute",
        (),
        (f"{FILE}::test_products_*",),
        evidence="proof",
        source=LEMMAS,
    ),
    _say(
        "Lemma H.5",
        "images, pseudo-inverse and projections of H and its root; v'Hv >= lambda_- "
        "|Pv|^2",
        "true",
        "attained at the eigenvector of the smallest positive eigenvalue",
        (),
        (f"{FILE}::test_images_*",),
        evidence="proof",
        source=LEMMAS,
    ),
    _say(
        "Lemma H.6",
        "the same for the operator Z -> H Z H",
        "true",
        "its projections are Z -> P Z P and the rest",
        ("regression.landscape.minimizers",),
        (f"{FILE}::test_minimisers_are_projected_*",),
        evidence="proof",
        source=LEMMAS,
    ),
)
