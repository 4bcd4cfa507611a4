"""Statements of the other papers that have identity tests."""

from experiments.ledger.statement import Statement

__all__ = ["OTHERS"]

OSWALD = "von Oswald et al. 2023 (arXiv 2212.07677)"
AHN = "Ahn et al. 2023 (arXiv 2306.00297)"
DEPTH = "This library (the limit of depth)"
SUPERSAMPLE = "This library (supersample bounds)"
GARG = "Garg et al. 2022 (arXiv 2208.01066)"
ZHANG = "Zhang, Wu and Bartlett 2024 (arXiv 2402.14951)"
HASTIE = "Hastie et al. 2022 (arXiv 1903.08560)"
BAI = "Bai et al. 2023 (arXiv 2306.04637)"
FAMILIES = "tests/experiments/test_garg_families.py"
RAVENTOS = "Raventos et al. 2023 (arXiv 2306.15063)"

OTHERS = (
    Statement(
        OSWALD,
        "Proposition 1",
        "one layer of linear attention makes one step of gradient descent",
        "exact",
        "needs a mask in which nothing attends to the query",
        ("constructions.gradient_descent", "constructions.read_prediction"),
        (
            "test_constructions.py::test_l_layers_are_l_explicit_steps_*",
            "test_constructions.py::test_one_layer_is_one_step_*",
            "test_constructions.py::test_many_layers_*",
            "test_constructions.py::test_the_construction_needs_*",
        ),
        evidence="numerical",
    ),
    Statement(
        OSWALD,
        "GD++",
        "layers that also transform the inputs improve their conditioning",
        "exact",
        "eigenvalues s of X^T X / N become s (1 - gamma s)^2",
        ("constructions.gd_plus_plus",),
        ("test_constructions.py::test_gd_plus_plus_*",),
        evidence="numerical",
    ),
    Statement(
        DEPTH,
        "Best L steps",
        "the least risk of L gradient steps from zero, and its step sizes",
        "exact",
        "Christoffel function of the mean spectrum; with noise the best polynomial can "
        "have complex roots, and then no real steps attain it",
        (
            "regression.optimum",
            "regression.Steps",
            "regression.depth.gradient_steps_limit",
            "linalg.wishart_moments",
        ),
        ("test_depth.py::test_*", "test_sampled_depth.py::test_*"),
        evidence="proof",
        source="depth#the-best-polynomial",
    ),
    Statement(
        DEPTH,
        "Floor of L layers",
        "no stack of L layers of the class is below the best (3^L - 1) / 2 steps",
        "true",
        "",
        ("regression.depth.depth_floor",),
        (
            "test_depth.py::test_gd_plus_plus_*",
            "test_depth.py::test_one_layer_meets_*",
        ),
        evidence="proof",
        source="depth#the-floor-of-linear-attention",
    ),
    Statement(
        SUPERSAMPLE,
        "Square root",
        "|error| <= mean of sqrt(2 I), with the information in the difference of the "
        "losses, in both losses, or in the predictions of a pair",
        "true",
        "",
        (
            "bounds.supersample_bounds",
            "bounds.prediction_bound",
            "bounds.supersample_losses",
        ),
        (
            "test_supersample.py::test_information_*",
            "test_supersample.py::test_no_bound_is_below_*",
            "test_supersample.py::test_predictions_*",
            "test_supersample.py::test_the_trial_*",
        ),
        evidence="proof",
        source="supersample#the-square-root",
    ),
    Statement(
        SUPERSAMPLE,
        "Optimal form",
        "|error| <= inf (I + E log cosh(l D)) / l is the least bound by information and"
        " law of the difference, and at most the variance and weighted forms",
        "true",
        "",
        ("bounds.supersample_bounds",),
        (
            "test_supersample.py::test_the_optimal_bound_*",
            "test_supersample.py::test_order_*",
        ),
        evidence="proof",
        source="supersample#variance-and-the-optimal-form",
    ),
    Statement(
        SUPERSAMPLE,
        "Fast rates",
        "error <= C train + I / c, and kl(train || train + error / 2) <= I",
        "true",
        "the weighted form is exact for a 0-1 loss that is 0 on the prompt",
        ("bounds.supersample_bounds",),
        (
            "test_supersample.py::test_no_bound_is_below_*",
            "test_supersample.py::test_zero_loss_*",
        ),
        evidence="proof",
        source="supersample#weighted-and-binary-forms",
    ),
    Statement(
        SUPERSAMPLE,
        "Confidence limits",
        "the limits exceed the true bound with the stated probability, for every "
        "number of prompts and of levels",
        "true",
        "",
        ("bounds.supersample_bounds",),
        (
            "test_supersample.py::test_the_lemma_*",
            "test_supersample.py::test_limits_*",
            "test_supersample.py::test_coverage_*",
        ),
        evidence="proof",
        source="supersample#confidence-limits",
    ),
    Statement(
        AHN,
        "Theorem 1, construction",
        "L layers make L steps of preconditioned gradient descent",
        "exact",
        "",
        ("constructions.preconditioned_gradient_descent",),
        (
            "test_constructions.py::test_l_layers_are_l_steps_of_preconditioned_*",
            "test_constructions.py::test_the_inverse_covariance_*",
            "test_constructions.py::test_a_multiple_of_the_identity_*",
        ),
        evidence="numerical",
    ),
    Statement(
        AHN,
        "Theorem 1, optimum",
        "the minimiser of one layer for an isotropic prior on the weights",
        "exact",
        "with label noise of variance s^2 added to the trace",
        ("regression.optimum", "regression.LinearStep"),
        ("test_exact_risks.py::test_the_optimum_for_an_isotropic_prior_*",),
        evidence="numerical",
    ),
    Statement(
        GARG,
        "least squares",
        "the error of least squares is 1 - k/d, and 0 from k = d",
        "exact",
        "isotropic inputs, no noise",
        ("regression.risk", "regression.LeastSquares"),
        (
            "test_exact_risks.py::test_least_squares_*",
            "test_exact_risks.py::test_simulation_agrees_*",
        ),
        evidence="numerical",
    ),
    Statement(
        GARG,
        "averaging",
        "the error of averaging is (d + 1)/k",
        "exact",
        "with noise (d + 1 + s^2)/k",
        ("regression.risk", "regression.Averaging"),
        (
            "test_exact_risks.py::test_noise_enters_*",
            "test_exact_risks.py::test_simulation_agrees_*",
        ),
        evidence="numerical",
    ),
    Statement(
        GARG,
        "Section 5, families",
        "sparse functions, ReLU networks and decision trees, and what their errors are "
        "divided by: s, d and 1",
        "exact",
        "as definitions; the labels divided by it have second moment 1",
        (
            "regression.SparseLinearRegression",
            "regression.ReluNetwork",
            "regression.DecisionTree",
        ),
        (f"{FAMILIES}::test_labels_divided_*",),
        evidence="simulation",
    ),
    Statement(
        GARG,
        "Section 5, exact risks of sparse functions",
        "least squares, averaging and one linear layer have the errors of dense "
        "functions with the same E ww^T",
        "exact",
        "not of the paper: these risks are quadratic in w",
        ("regression.risk", "regression.LeastSquares", "regression.Averaging"),
        (f"{FAMILIES}::test_sparse_functions_*",),
        evidence="numerical",
    ),
    Statement(
        GARG,
        "Figure 5",
        "transformers nearly reach the Lasso, a trained two-layer network and beat "
        "greedy trees",
        "empirical",
        "at d = 5 (experiments.garg_linear --task): two of the claims do not hold at "
        "this size",
        evidence="simulation",
    ),
    Statement(
        GARG,
        "Section 3, architecture",
        "a GPT-2 that reads x and y as separate tokens",
        "exact",
        "as a definition: equal to PyTorch's on a published file's layout",
        ("models.GPT2", "models.load_garg_checkpoint"),
        ("tests/models/test_garg_checkpoint.py::test_the_fixture_predicts_*",),
        evidence="numerical",
    ),
    Statement(
        ZHANG,
        "Section 5 (one layer)",
        "one layer of linear attention, any preconditioner and population",
        "exact",
        "",
        ("regression.risk", "regression.LinearStep"),
        (
            "test_exact_risks.py::test_attention_and_averaging_*",
            "test_exact_risks.py::test_the_risk_of_a_fixed_preconditioner_*",
            "test_exact_risks.py::test_exact_risks_are_*",
            "test_exact_risks.py::test_impossible_*",
        ),
        evidence="numerical",
    ),
    Statement(
        ZHANG,
        "Theorem 5.2 (one layer)",
        "its best preconditioner, and (d + 1 + s^2)/(k + d + 1 + s^2) where isotropic",
        "exact",
        "",
        ("regression.optimum", "regression.LinearStep", "regression.Steps"),
        (
            "test_exact_risks.py::test_the_optimum_*",
            "test_exact_risks.py::test_noise_enters_*",
        ),
        evidence="numerical",
    ),
    Statement(
        ZHANG,
        "Lemma 6.1",
        "the risk of the Bayes predictor given the inputs, and its average",
        "exact",
        "",
        ("regression.estimate_risk", "regression.Bayes"),
        (
            "test_exact_posterior_risks.py::test_bayes_*",
            "test_exact_posterior_risks.py::test_the_bayes_risk_*",
            "test_exact_posterior_risks.py::test_impossible_*",
        ),
        evidence="numerical",
    ),
    Statement(
        HASTIE,
        "Lemma 1",
        "the risk of ridge given the inputs: bias and variance",
        "exact",
        "",
        ("regression.Ridge",),
        ("test_exact_posterior_risks.py::test_ridge_given_*",),
        evidence="numerical",
    ),
    Statement(
        BAI,
        "ridge baselines",
        "0.103, 0.229, 0.398, 0.622 at d = n = 20 for noise 0.1, 0.25, 0.5, 1",
        "empirical",
        "to the three digits",
        ("regression.estimate_risk", "regression.Ridge"),
        ("test_exact_posterior_risks.py::test_the_published_ridge_risks_*",),
        evidence="numerical",
    ),
    Statement(
        RAVENTOS,
        "ridge baseline",
        "error of ridge over k = 0, ..., 15 at d = 8, noise variance 1/4",
        "empirical",
        "read off a figure: to 3 percent",
        ("regression.estimate_risk", "regression.Bayes"),
        ("test_exact_posterior_risks.py::test_the_published_ridge_curve",),
        evidence="numerical",
    ),
)
