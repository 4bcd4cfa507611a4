"""Yao et al. 2024: definitions, tables, figures, and the summary by others."""

import functools

from experiments.ledger.statement import Statement
from experiments.ledger.yao_trajectories import YAO

__all__ = ["YAO_FIGURES"]

_say = functools.partial(Statement, YAO)

YAO_FIGURES = (
    _say(
        "Section 3.1, error",
        "the expected generalisation error: population risk less empirical risk",
        "exact",
        "as a definition; Lemma 2 bounds its absolute value",
        ("bounds.xu_raginsky",),
        (
            "test_yao_lemmas.py::test_lemma_2_*",
            "test_yao_true_error.py::test_no_valid_variant_*",
        ),
        evidence="simulation",
    ),
    _say(
        "Section 3.4, condition number",
        "Cond(W) = |W|_2 |W^(-1)|_2 = sigma_max / sigma_min",
        "exact",
        "as a definition; infinite for a singular W",
        ("linalg.condition_number",),
        (
            "tests/linalg/test_linalg.py::test_condition_number_is_*",
            "tests/linalg/test_linalg.py::test_infinity_is_*",
        ),
        evidence="numerical",
    ),
    _say(
        "Figure 1",
        "clipping improves in-context learning, deep layers bear it better",
        "empirical",
        "GPT-J and LLaMA-2 were not run. On SmolLM2-135M deep layers bear it better "
        "(Kendall's tau .16 [.07, .25]); clips cost accuracy in the mean of every task "
        "(experiments.real_model)",
        ("bridge.algorithm1",),
        ("tests/experiments/test_real_model_results.py::test_deep_layers_*",),
        evidence="simulation",
    ),
    _say(
        "Figure 2",
        "accuracy rises with the shots; with fewer shots a clipped shallow layer "
        "collapses later",
        "empirical",
        "GPT-J and LLaMA-2 were not run. On SmolLM2-135M it rises beyond chance in two "
        "of six tasks and falls in one (experiments.real_model); the speed of the "
        "collapse is not measured",
        (),
        ("tests/experiments/test_real_model_results.py::test_demonstrations_*",),
        evidence="simulation",
    ),
    _say(
        "Figure 3",
        "condition numbers are larger in deep layers, and smaller in the MLP",
        "empirical",
        "GPT-J and LLaMA-2 were not run. In SmolLM2-135M they grow with depth for one "
        "of seven matrices, and those of the MLP are smaller than of W_Q, W_K and W_O, "
        "not of W_V (experiments.real_model); the 4 bits of its file set those of W_Q "
        "and W_O",
        ("linalg.condition_number",),
        ("tests/experiments/test_real_model_results.py::test_condition_numbers_*",),
        evidence="simulation",
    ),
    _say(
        "Figure 4",
        "Algorithm 1 improves the test score on most tasks",
        "empirical",
        "GPT-J and LLaMA-2 were not run. On SmolLM2-135M in one of six tasks beyond "
        "chance, for attention, where a factor on the same layer's output gains as "
        "much (experiments.real_model)",
        ("bridge.algorithm1",),
        ("tests/experiments/test_real_model_results.py::test_algorithm_1_*",),
        evidence="simulation",
    ),
    _say(
        "Figure 5a",
        "a trained transformer follows least squares, error 0.02 at k = d = 20",
        "empirical",
        "from Garg et al.; at d = 5 and 20 by experiments.garg_linear, where it falls "
        "behind least squares near k = d",
        ("regression.risk", "regression.LeastSquares"),
        evidence="simulation",
    ),
    _say(
        "Figure 5b",
        "the error falls with the steps of training",
        "empirical",
        "at d = 5 by experiments.implicit_noise",
        evidence="simulation",
    ),
    _say(
        "Table 1",
        "the prompts of the seven data sets",
        "exact",
        "as a definition",
        ("bridge.tasks.load_task",),
        ("tests/bridge/test_tasks.py::test_prompts_are_*",),
        evidence="numerical",
    ),
    _say(
        "Tables 2 to 8",
        "scores of GPT-J and LLaMA-2 before and after Algorithm 1",
        "empirical",
        "not rerun: they need the weights. Three of the 28 rows are lower after it "
        "and five unchanged; no row has an interval. experiments.real_model prints "
        "ours beside them",
        ("bridge.algorithm1",),
        (
            "tests/experiments/test_real_model_published.py::test_the_rows_*",
            "tests/experiments/test_real_model_published.py::test_ours_stand_*",
        ),
    ),
    _say(
        "Summary by others",
        "a summary of the paper: pruning of dense attention layers, models up to 3B, "
        "convergence in fine-tuning",
        "no claim",
        "not by the authors, and wrong in these: MLP and attention are pruned, the "
        "models have 6 and 7 billion parameters, and nothing is fine-tuned",
    ),
)
