"""Statements on the Bayes risk and on rates: Zhang, Wu, Bartlett and related."""

from experiments.ledger.statement import Statement

__all__ = ["RATES"]

ZHANG = "Zhang, Wu and Bartlett 2024 (arXiv 2402.14951)"
WU = "Wu et al. 2024 (arXiv 2310.08391)"
ZFB = "Zhang, Frei and Bartlett 2024 (arXiv 2306.09927)"
AHN = "Ahn et al. 2023 (arXiv 2306.00297)"

RATES = (
    Statement(
        ZHANG,
        "Lemma 6.1, estimate",
        "the posterior mean, in its primal and its dual form, is the best estimate",
        "exact",
        "",
        ("regression.bayes.posterior_mean", "regression.bayes.risk_given"),
        ("test_zhang_bayes.py::test_*",),
    ),
    Statement(
        ZHANG,
        "Lemma 6.1, as targets",
        "posterior means in place of labels leave a training's mean gradient as it is",
        "exact",
        "the tower rule, not in the paper; the gradient's noise falls",
        ("training.bayes_targets",),
        ("test_posterior_targets.py::test_*",),
    ),
    Statement(
        ZHANG,
        "Lemma 6.1, average",
        "the Bayes risk averaged over the inputs, by exact risks given drawn inputs",
        "exact",
        "for d = 1 a chi-square integral; no elementary closed form beyond",
        ("regression.bayes.average_risk",),
        ("test_zhang_bayes_average.py::test_average_risk_*",),
    ),
    Statement(
        ZHANG,
        "Section 6, sandwich",
        "the average Bayes risk lies between Jensen's bound and the best GD-beta",
        "true",
        "not numbered in the paper",
        ("regression.bayes.sandwich",),
        ("test_zhang_bayes_average.py::test_sandwich_*",),
    ),
    Statement(
        ZHANG,
        "Lemma 6.1, rate",
        "the Bayes excess is of the order of sum min(phi_i, s^2 / M)",
        "conditional",
        "tr(H Psi) <= c s^2; proved here on average, with constants 1/2 and 1 + 2c; "
        "the constants given the inputs, with high probability, are observed only",
        ("regression.bayes.risk_rate",),
        ("test_zhang_bayes_average.py::test_rate_*",),
    ),
    Statement(
        ZHANG,
        "Corollary 6.2",
        "the excess of the best GD-beta and LTB is of the Bayes order",
        "conditional",
        "tr(H Psi) <= c s^2; constants 1/3 and 1 + 2c; the paper's name for the "
        "threshold s^2 / M is unknown",
        (
            "regression.rates.effective_dimension",
            "regression.rates.optimal_risk_rate",
        ),
        ("test_zhang_rates.py::test_*",),
    ),
    Statement(
        ZHANG,
        "Lemmas H.3 and H.4",
        "moments of Gaussian Gram matrices, weights and noise; derivatives of traces",
        "exact",
        "",
        (),
        ("test_zhang_moments.py::test_*",),
    ),
    Statement(
        WU,
        "Theorem 3.1",
        "the best single gradient step, and the excess of any other",
        "exact",
        "",
        (
            "regression.rates.one_step_optimum",
            "regression.rates.one_step_excess",
        ),
        (
            "test_wu.py::test_optimum_of_one_step_*",
            "test_wu.py::test_risk_of_any_step_*",
        ),
    ),
    Statement(
        WU,
        "Section 5, risk at another length",
        "the risk with M examples of the step tuned for N",
        "exact",
        "",
        ("regression.rates.length_transfer",),
        (
            "test_wu.py::test_risk_at_another_length_is_exact",
            "test_wu.py::test_length_transfer_*",
        ),
    ),
    Statement(
        WU,
        "Section 5, rate at another length",
        "its excess up to constants",
        "conditional",
        "psi^2 tr(H) <= s^2; the constants are observed, not proved",
        ("regression.rates.length_transfer",),
        ("test_wu.py::test_rate_at_another_length_*",),
    ),
    Statement(
        WU,
        "Theorem 4.1 (from memory)",
        "how many tasks one-step pretraining by SGD needs",
        "empirical",
        "unverified: agrees with simulation on one instance, up to a constant",
        (
            "regression.rates.halving_steps",
            "regression.rates.task_complexity_bound",
        ),
        ("test_wu_tasks.py::test_*",),
    ),
    Statement(
        ZFB,
        "Theorem 4.1, limit",
        "the limit of gradient flow is the best step, split evenly over the matrices",
        "exact",
        "",
        ("regression.rates.trained_attention_limit",),
        ("test_frei_trained_attention.py::test_limit_*",),
    ),
    Statement(
        ZFB,
        "Theorem 4.1, convergence",
        "a Polyak-Lojasiewicz inequality along the flow",
        "conditional",
        "s^2 |G| sqrt(d) < 2; the constant is s^2 K_1 / K_2: inverted it is false",
        ("regression.rates.convergence_constants",),
        (
            "test_frei_trained_attention.py::test_convergence_constants_*",
            "test_frei_trained_attention.py::test_the_inverted_*",
        ),
    ),
    Statement(
        ZFB,
        "Theorem 4.2",
        "the risk at another prompt length, for any law of the labels",
        "exact",
        "",
        (
            "regression.rates.risk_at_length",
            "regression.rates.linear_moment_cov",
        ),
        ("test_frei_trained_attention.py::test_risk_at_another_length_*",),
    ),
    Statement(
        ZFB,
        "Theorem 4.2, corollary",
        "(d + 1) tr / M + (1 + 2d + d^2 kappa) tr / N^2 bounds the average risk",
        "true",
        "",
        ("regression.rates.risk_at_length_bound",),
        ("test_frei_trained_attention.py::test_bound_on_the_average_risk_*",),
    ),
    Statement(
        ZFB,
        "Theorem 4.5",
        "the optimum for random diagonal input covariances",
        "exact",
        "",
        ("regression.rates.random_covariance_optimum",),
        ("test_frei_trained_attention.py::test_optimum_for_random_covariances_*",),
    ),
    Statement(
        AHN,
        "Theorem 1, P and Q",
        "the global optimum of one layer in the paper's own matrices",
        "exact",
        "many random starts end in local minima that do worse",
        (
            "regression.rates.preconditioned_optimum",
            "regression.rates.preconditioned_prediction",
        ),
        ("test_ahn_one_layer.py::test_*",),
    ),
)
