"""Statements on gradient flow: Zhang, Wu and Bartlett; Zhang, Frei and Bartlett."""

from experiments.ledger.statement import Statement

__all__ = ["FLOW"]

ZHANG = "Zhang, Wu and Bartlett 2024 (arXiv 2402.14951)"
ZFB = "Zhang, Frei and Bartlett 2024 (arXiv 2306.09927)"
FILE = "test_zhang_theorem_6_3.py"

FLOW = (
    Statement(
        ZHANG,
        "Theorem 6.3",
        "gradient flow of GD-beta converges to a minimiser",
        "exact",
        "for singular H to the projected optimum; the rest stays as it was",
        ("regression.flow", "regression.flow_limit"),
        (
            f"{FILE}::test_flow_converges_*",
            f"{FILE}::test_what_inputs_do_not_span_*",
            f"{FILE}::test_path_is_that_of_another_solver*",
            f"{FILE}::test_excess_falls_*",
        ),
        evidence="proof",
        source="rates#theorem-63",
    ),
    Statement(
        ZHANG,
        "Theorem 6.3, rates",
        "exponential rates, two cases by whether alpha = gamma",
        "reconstructed",
        "the printed constants are lost; these are derived, and hold from every start",
        ("regression.flow_bounds",),
        (
            f"{FILE}::test_flow_never_outruns_*",
            f"{FILE}::test_bound_where_the_two_rates_meet*",
            f"{FILE}::test_bounds_are_the_formulas_*",
            "test_symbolic_zhang.py::test_bound_on_the_flow_*",
        ),
        evidence="proof",
        source="rates#rates-of-the-gradient-flow",
    ),
    Statement(
        ZHANG,
        "Lemma G.3",
        "|P(beta_t - beta*)| falls at the rate 2 lambda_- / (M + 1)",
        "reconstructed",
        "the printed constant is lost, the text's steps give 2 lambda_- / (M + 1); 4 "
        "lambda_- / (M + 2) is the largest rate that always holds",
        ("regression.flow_bounds", "regression.landscape.curvature"),
        (
            f"{FILE}::test_flow_never_outruns_*",
            f"{FILE}::test_rate_of_the_start_is_attained",
        ),
        evidence="proof",
        source="rates#rates-of-the-gradient-flow",
    ),
    Statement(
        ZHANG,
        "Lemma G.4",
        "the flow of Gamma in its deviation from Gamma*",
        "exact",
        "",
        ("regression.risk",),
        (f"{FILE}::test_flow_in_deviations_*",),
        evidence="proof",
        source="rates#rates-of-the-gradient-flow",
    ),
    Statement(
        ZHANG,
        "after Theorem 6.3",
        "the risk of GD-beta is not convex, and nothing is claimed for all weights",
        "true",
        "",
        ("regression.flow",),
        (
            f"{FILE}::test_risk_is_not_convex",
            f"{FILE}::test_attention_at_a_zero_mean_*",
            f"{FILE}::test_ltb_started_near_*",
            "test_symbolic_zhang.py::test_risk_is_not_*",
        ),
        evidence="proof",
        source="rates#theorem-63",
    ),
    Statement(
        ZHANG,
        "Section 6, descent",
        "steps and samples follow the flow",
        "conditional",
        "to first order in the step; samples up to their noise; not in the paper",
        ("regression.descend",),
        ("test_zhang_flow_descent.py::*",),
        evidence="numerical",
    ),
    Statement(
        ZFB,
        "Theorem 4.1, flow",
        "the flow of the whole layer is that of (u, U) and ends at its optimum",
        "exact",
        "u^2 - |U|^2 is conserved",
        ("regression.flow", "regression.AttentionWeights"),
        (
            "test_frei_flow.py::test_reduced_flow_*",
            "test_frei_flow.py::test_flow_of_the_whole_layer_*",
        ),
        evidence="numerical",
    ),
    Statement(
        ZFB,
        "Appendix A, along the flow",
        "Polyak-Lojasiewicz constant and lower bound on u",
        "reconstructed",
        "known from a secondary note, which has the ratio inverted; s^2 K_1 / K_2, for "
        "half the squared error, holds on the paths integrated, the inverted ratio is "
        "false by many orders",
        (
            "regression.flow",
            "regression.flow_bounds",
        ),
        (
            "test_frei_flow.py::test_corrected_constant_*",
            "test_frei_flow.py::test_inverted_constant_*",
        ),
        evidence="numerical",
    ),
)
