"""Statements on chain of thought: Li et al. (arXiv 2410.02167) and their slides."""

from experiments.ledger.statement import Statement

__all__ = ["LI_COT"]

LI = "Li et al. 2025 (arXiv 2410.02167)"
PACKAGE = "chain_of_thought"
STEPS = "test_li_cot_transitions.py"
VOTES = "test_li_cot_votes.py"

LI_COT = (
    Statement(
        LI,
        "K-steps transition",
        "B = A_1 ... A_K; tau and tau_o of the slides' matrices are .36 and .56",
        "exact",
        "",
        (
            f"{PACKAGE}.ReasoningTask.composed_transition",
            f"{PACKAGE}.ReasoningTask.tau",
            f"{PACKAGE}.ReasoningTask.tau_o",
            f"{PACKAGE}.ReasoningTask.rho",
        ),
        (
            f"{STEPS}::test_the_slides_matrices_*",
            f"{STEPS}::test_everything_is_the_sum_*",
            f"{STEPS}::test_they_are_jitted_*",
            f"{STEPS}::test_edge_cases",
            f"{STEPS}::test_rows_that_are_no_*",
            "test_symbolic_li.py::test_slides_numbers_*",
        ),
        evidence="exact arithmetic",
    ),
    Statement(
        LI,
        "correct path",
        "the correct path is the most probable trajectory",
        "false as written",
        "it takes the likeliest state at each step: .255 where the best path has .49",
        (
            f"{PACKAGE}.ReasoningTask.stepwise_paths",
            f"{PACKAGE}.ReasoningTask.most_probable_paths",
        ),
        (
            f"{STEPS}::test_the_correct_path_need_not_*",
            "test_symbolic_li.py::test_stepwise_*",
        ),
        evidence="exact arithmetic",
    ),
    Statement(
        LI,
        "Theorem 4",
        "training reaches a small loss by matching step and pattern",
        "empirical",
        "",
        (f"{PACKAGE}.train_attention", f"{PACKAGE}.training_conditions"),
        (
            "test_li_theorem4.py::test_training_ends_*",
            "test_li_theorem4.py::test_what_is_learned_*",
            "test_li_theorem4.py::test_the_predicate_*",
        ),
        evidence="simulation",
    ),
    Statement(
        LI,
        "Figure 20",
        "attention finds the step first, then the input",
        "empirical",
        "",
        (f"{PACKAGE}.attention_masses",),
        ("test_li_theorem4.py::test_attention_finds_*",),
        evidence="simulation",
    ),
    Statement(
        LI,
        "CoT mechanism",
        "concentrated attention answers each step by a vote of the examples",
        "exact",
        "ties are decided by what attention leaks; bounds need every rival's term",
        (
            f"{PACKAGE}.ReasoningAttention.matching",
            f"{PACKAGE}.vote_error",
            f"{PACKAGE}.decay_bound",
        ),
        (
            f"{VOTES}::*",
            "test_symbolic_li.py::test_chernoff_*",
            "test_symbolic_li.py::test_vote_bound_*",
        ),
        evidence="numerical",
    ),
    Statement(
        LI,
        "Theorem 5, slides",
        "(alpha' tau)^-2 examples suffice for chain of thought",
        "false as written",
        "no constant serves all tasks: with tau > 1/2 and rho -> 0 the error stays 1/2",
        (f"{PACKAGE}.cot_conditions",),
        (
            "test_li_theorem5.py::test_without_the_gap_*",
            "test_li_theorem5.py::test_both_forms_*",
            "test_symbolic_li.py::test_without_*",
        ),
        evidence="proof",
        source="patterns#votes",
    ),
    Statement(
        LI,
        "Theorem 5, published",
        "(alpha' tau rho)^-2 examples suffice for chain of thought",
        "conditional",
        "for attention that counts votes; constants 4 log(K (M - 1) / delta) / "
        "(alpha' tau rho^2), never more",
        (f"{PACKAGE}.cot_error_bound", f"{PACKAGE}.sufficient_examples"),
        (
            "test_li_theorem5.py::test_the_bound_*",
            "test_li_theorem5.py::test_alpha_tau_rho_*",
            "test_li_theorem5.py::test_patterns_outside_*",
        ),
        evidence="proof",
        source="patterns#votes",
    ),
    Statement(
        LI,
        "Theorems 5 and 6 together",
        "chain of thought is right where plain in-context learning is not",
        "empirical",
        "",
        (f"{PACKAGE}.ChainOfThought", f"{PACKAGE}.DirectAnswer"),
        (
            "test_li_theorem5.py::test_trained_chain_of_thought_*",
            "test_li_theorem6.py::test_the_error_tends_*",
        ),
        evidence="simulation",
    ),
    Statement(
        LI,
        "Theorem 6, part 1",
        "where Condition 1 fails the error of plain ICL stays away from 0",
        "conditional",
        "for attention that counts votes; the limit is the share of failing inputs, "
        "1/2 for the slides' matrices",
        (
            f"{PACKAGE}.ReasoningTask.condition_1",
            f"{PACKAGE}.ReasoningTask.icl_error_limit",
        ),
        (
            "test_li_theorem6.py::test_condition_1_*",
            "test_li_theorem6.py::test_two_inputs_*",
            "test_li_theorem6.py::test_the_error_tends_*",
            "test_li_theorem6.py::test_failing_inputs_*",
        ),
        evidence="proof",
        source="patterns#condition-1",
    ),
    Statement(
        LI,
        "Theorem 6, part 2",
        "under Condition 1 (alpha' tau_o rho_o)^-2 examples suffice for plain ICL",
        "conditional",
        "with explicit constants, for attention that counts votes",
        (f"{PACKAGE}.icl_error_bound", f"{PACKAGE}.icl_conditions"),
        (
            "test_li_theorem6.py::test_the_bound_of_part_2_*",
            "test_li_theorem6.py::test_both_forms_*",
        ),
        evidence="proof",
        source="patterns#votes",
    ),
)
