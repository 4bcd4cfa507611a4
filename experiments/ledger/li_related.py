"""Works related to Li et al.: Huang et al., Cheng et al., Olsson et al., Wu et al."""

from experiments.ledger.statement import Statement

__all__ = ["LI_RELATED"]

HUANG = "Huang et al. 2024 (arXiv 2310.05249)"
CHENG = "Cheng et al. 2024 (arXiv 2312.06528)"
WU = "Wu et al. 2024 (arXiv 2310.08391)"
OLSSON = "Olsson et al. 2022 (arXiv 2209.11895)"
FEATURES, KERNELS, HEADS = "test_huang.py", "test_cheng.py", "test_olsson.py"

LI_RELATED = (
    Statement(
        HUANG,
        "gradient",
        "the population gradient in the logits A_k, B_kn",
        "exact",
        "in finite contexts as an expectation over multinomial counts",
        ("regression.features.feature_gradient",),
        (f"{FEATURES}::test_gradient_*",),
        evidence="numerical",
    ),
    Statement(
        HUANG,
        "balanced features",
        "all features move alike; two phases, attention first and loss after",
        "exact",
        "in infinite contexts A + (K - 1) B = 0, du/dt = -(2 eta s^2 / K) u^3 (1-u)^2; "
        "t(u) in closed form; descent at step size 1/4 follows within 1 %",
        (
            "regression.balanced_features.balanced_time",
            "regression.balanced_features.balanced_attention",
        ),
        (
            f"{FEATURES}::test_balanced_*",
            f"{FEATURES}::test_flow_obeys_*",
            "test_symbolic_li.py::test_time_of_*",
        ),
        evidence="symbolic",
    ),
    Statement(
        HUANG,
        "balanced features, phase 1",
        "attention takes of order K^2 / eta steps to reach a constant",
        "true",
        "K^2 / (2 eta) (1 + 3 ln K / K) to leading orders for attention 1/2",
        ("regression.balanced_features.balanced_time",),
        (f"{FEATURES}::test_first_phase_*",),
        evidence="proof",
        source="rates#balanced-features",
    ),
    Statement(
        HUANG,
        "balanced features, phase 2",
        "the loss falls like 1 / t",
        "true",
        "L t -> (K - 1) / (4 eta) from above; at L = 2e-3 still 20 % (K = 5) to 30 % "
        "(K = 20) over it",
        ("regression.balanced_features.loss_asymptote",),
        (
            f"{FEATURES}::test_second_phase_*",
            "test_symbolic_li.py::test_loss_tends_*",
        ),
        evidence="proof",
        source="rates#balanced-features",
    ),
    Statement(
        HUANG,
        "imbalanced features",
        "a rare query first sheds the dominant feature, then grows its own; a dominant "
        "one has a single phase",
        "empirical",
        "at K = 8, p_1 = 1/2, eta = 1/2: learned after 67 steps against 666",
        ("regression.features.feature_phases",),
        (f"{FEATURES}::test_a_rare_query_*",),
        evidence="simulation",
    ),
    Statement(
        CHENG,
        "functional gradient descent",
        "attention with a kernel makes steps of gradient descent in its space",
        "exact",
        "without a normaliser, on the label row alone, the query no key",
        (
            "regression.kernels.kernel_descent_stack",
            "regression.kernels.functional_descent",
        ),
        (f"{KERNELS}::test_three_forms_*",),
        evidence="numerical",
    ),
    Statement(
        CHENG,
        "closed form",
        "k_q^T K^{-1} (I - (I - rK)^L) y after L layers",
        "exact",
        "for singular K by h_L(lambda) = r sum_l (1 - r lambda)^l",
        ("regression.kernels.descent_weights",),
        (f"{KERNELS}::test_three_forms_*", f"{KERNELS}::test_closed_form_*"),
        evidence="numerical",
    ),
    Statement(
        CHENG,
        "Bayes predictor in depth",
        "matched attention tends to the Bayes predictor of a Gaussian process",
        "conditional",
        "for r < 2 / lambda_max and a kernel matrix without negative eigenvalues",
        ("regression.kernels.kernel_descent",),
        (
            f"{KERNELS}::test_depth_tends_*",
            f"{KERNELS}::test_matched_attention_*",
            f"{KERNELS}::test_risk_is_*",
        ),
        evidence="numerical",
    ),
    Statement(
        CHENG,
        "other kernels",
        "linear attention on nonlinear data; relu attention",
        "conditional",
        "deep linear attention ends worse than answering 0 on rbf data (1.267); relu "
        "of inner products is no kernel, its depth diverges (208 at 100 layers)",
        ("regression.kernels.KernelSystem",),
        (f"{KERNELS}::test_linear_attention_*", f"{KERNELS}::test_relu_*"),
        evidence="numerical",
    ),
    Statement(
        CHENG,
        "softmax",
        "softmax attention as descent with the exponential kernel",
        "conditional",
        "an approximation, as its rows are normalised; the recursion is exact for "
        "D^{-1} K and tends to k_q^T K^{-1} D y / D_q, not to kriging",
        ("regression.kernels.KernelSystem",),
        (
            f"{KERNELS}::test_three_forms_are_one[softmax]",
            f"{KERNELS}::test_softmax_depth_*",
        ),
        evidence="numerical",
    ),
    Statement(
        OLSSON,
        "induction heads",
        "a previous-token head and a prefix-matching head continue repetitions",
        "exact",
        "as weights: scores 1 and 0, accuracy 1 in the repeats; position 0 reads "
        "itself and must be left out of the keys",
        ("induction.induction_circuit", "induction.head_scores"),
        (
            f"{HEADS}::test_induction_head_matches_*",
            f"{HEADS}::test_circuit_continues_*",
            f"{HEADS}::test_uniform_attention_*",
            f"{HEADS}::test_the_score_of_a_batch_*",
        ),
        evidence="numerical",
    ),
    Statement(
        OLSSON,
        "copying scores",
        "by eigenvalues of the OV circuit and by the logits that are raised",
        "exact",
        "as definitions; 1, -1 and about 0 for I, -I and random circuits",
        ("induction.copying_score", "induction.copying_ratio"),
        (f"{HEADS}::test_copying_*", f"{HEADS}::test_induction_head_copies_*"),
        evidence="numerical",
    ),
    Statement(
        OLSSON,
        "in-context score",
        "loss late in the context minus loss early",
        "exact",
        "as a definition; of the circuit -8.24 at logits of 30, which sets its scale",
        ("induction.in_context_score",),
        (f"{HEADS}::test_in_context_*",),
        evidence="numerical",
    ),
    Statement(
        WU,
        "number of tasks, simulated",
        "T prompts of one query suffice for an excess of order d^2 / T",
        "empirical",
        "least squares over Gamma at d = 5, N = 20: excess T / (d^2 R*) between 1.2 "
        "and 2.3, R* = 0.8815",
        ("regression.optimum", "regression.excess"),
        ("test_wu_simulation.py::test_*",),
        evidence="simulation",
    ),
)
