"""Statements on in-context classification: Li, Wang, Lu, Cui and Chen."""

from experiments.ledger.statement import Statement

__all__ = ["LI_ICL"]

LI = "Li, Wang, Lu, Cui and Chen 2024 (arXiv 2402.15607)"
SMALL = "test_li_icl_small.py"

LI_ICL = (
    Statement(
        LI,
        "Theorem 1",
        "unseen tasks are learned from a uniform cover of a share of the tasks",
        "empirical",
        "at one setting of widths, steps and lengths, three seeds; the constants are "
        "not published and the proof is not in the slides",
        ("patterns.in_domain_conditions", "patterns.train"),
        (
            "test_li_theorem1.py::test_unseen_tasks_*",
            f"{SMALL}::test_unseen_tasks_*",
        ),
        evidence="simulation",
    ),
    Statement(
        LI,
        "Theorem 1, |T_tr| >= M1",
        "one talk: M1 tasks are a share of (M1 - 1)^(-1/2) and enough",
        "false as written",
        "a share of (M1 - 1)^(-1); enough in domain, not for shifted patterns",
        ("patterns.circulant_tasks", "patterns.task_ratio"),
        ("test_li_theorem1.py::test_a_ring_*",),
        evidence="exact arithmetic",
    ),
    Statement(
        LI,
        "Theorem 1, l_ts",
        "the prompt has to be longer than a multiple of 1 / alpha'",
        "conditional",
        "for concentrated attention, which errs where no context shares the query's "
        "pattern: (1 - alpha'/2)^l; that a trained network errs there, always at "
        "alpha' = 1, is observed",
        ("patterns.miss_probability",),
        ("test_li_theorem1.py::test_error_*",),
        evidence="proof",
        source="patterns#a-miss",
    ),
    Statement(
        LI,
        "Theorem 1, T",
        "the number of iterations is of order alpha^(-2/3)",
        "empirical",
        "a crossover: A / alpha + B in the reduced dynamics, which give the steps of "
        "trainings within 4 %; slopes go from -.6 to -1 (-.784, standard error .008, "
        "over alpha = 1 to .25 in experiments.pattern_icl)",
        ("patterns.reduced_training", "patterns.train"),
        (
            "test_li_reduced.py::test_*",
            "test_li_theorem1.py::test_steps_*",
            f"{SMALL}::test_steps_*",
        ),
        evidence="simulation",
    ),
    Statement(
        LI,
        "Proposition 1",
        "W_Q and W_K project on the pattern, attention concentrates on it",
        "empirical",
        "in training at one setting",
        (
            "patterns.projections",
            "patterns.pattern_logits",
            "patterns.scores",
        ),
        (
            "test_li_icl_propositions.py::test_proposition_1_*",
            f"{SMALL}::test_attention_*",
        ),
        evidence="simulation",
    ),
    Statement(
        LI,
        "Proposition 2",
        "rows of W_O W_V align with the mean pattern, and with q or -q",
        "empirical",
        "in training at one setting; the neurons that grow: some stay where they "
        "started",
        ("patterns.neuron_parts",),
        (
            "test_li_icl_propositions.py::test_proposition_2_*",
            f"{SMALL}::test_neurons_*",
        ),
        evidence="simulation",
    ),
    Statement(
        LI,
        "Theorem 2",
        "shifted patterns are classified where S_1 >= 1",
        "conditional",
        "the hinge error; the 0-1 error of one layer holds down to about -1/c",
        (
            "patterns.out_of_domain_conditions",
            "patterns.out_of_domain_patterns",
            "patterns.is_feasible",
        ),
        (
            "test_li_theorem2.py::test_shifted_*",
            "test_li_theorem2.py::test_the_hinge_error_*",
            "tests/patterns/test_shift.py::test_no_orthonormal_rows_*",
        ),
        evidence="simulation",
    ),
    Statement(
        LI,
        "Theorem 2, margin",
        "lucky neurons make F = g[(1 + cS)_+ - (cS - 1)_+]",
        "exact",
        "derived; for a trained network g A and c / A, A the agreement of labels",
        ("patterns.margin", "patterns.gain_ratio"),
        (
            "test_li_theorem2.py::test_an_ideal_network_*",
            "test_li_theorem2.py::test_the_margin_*",
            "test_symbolic_li.py::test_margin_*",
            "test_symbolic_li.py::test_feasible_*",
        ),
        evidence="proof",
        source="patterns#the-margin-and-the-hinge-error",
    ),
    Statement(
        LI,
        "Theorem 3, small neurons",
        "a part of the neurons stays small, and pruning it is free",
        "empirical",
        "in training at one setting; an early talk has M1 in place of M2",
        ("patterns.prune_neurons", "patterns.pruning_conditions"),
        (
            "test_li_theorem3.py::test_neurons_fall_*",
            "test_li_theorem3.py::test_pruning_all_small_*",
            f"{SMALL}::test_neurons_*",
            f"{SMALL}::test_pruning_*",
        ),
        evidence="simulation",
    ),
    Statement(
        LI,
        "Theorem 3, large neurons",
        "pruning a share R of the large neurons costs Omega(R)",
        "conditional",
        "[1 - F (1 - g)]_+ at random: free within the slack g < 1 - 1/F",
        ("patterns.pruned_hinge", "pruning.prune_rows"),
        (
            "test_li_theorem3.py::test_an_ideal_network_*",
            "test_li_theorem3.py::test_random_*",
            "test_li_theorem3.py::test_large_neurons_*",
            "test_li_theorem3.py::test_a_share_*",
            "test_symbolic_li.py::test_pruned_*",
        ),
        evidence="proof",
        source="patterns#the-margin-and-the-hinge-error",
    ),
)
