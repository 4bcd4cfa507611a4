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
        "GPT-J and LLaMA-2 were not run. On the small language model of "
        "experiments.prune_llm no rate is better beyond chance; the deepest layer "
        "bears strong clipping better than the first in 6 of 8 cases",
        ("bridge.algorithm1",),
        evidence="simulation",
    ),
    _say(
        "Figure 2",
        "accuracy rises with the shots; with fewer shots a clipped shallow layer "
        "collapses later",
        "empirical",
        "GPT-J and LLaMA-2 were not run; experiments.shots finds the rise on a small "
        "language model; the speed of the collapse is not measured",
        evidence="simulation",
    ),
    _say(
        "Figure 3",
        "condition numbers are larger in deep layers, and smaller in the MLP",
        "empirical",
        "GPT-J and LLaMA-2 were not run; in the small language model of "
        "experiments.condition_numbers they are smaller in the MLP, not relative to "
        "random matrices of their shapes; no trend with depth beyond chance",
        ("linalg.condition_number",),
        evidence="simulation",
    ),
    _say(
        "Figure 4",
        "Algorithm 1 improves the test score on most tasks",
        "empirical",
        "GPT-J and LLaMA-2 were not run; experiments.prune_llm: 7 of 8 cases pruned, "
        "none better beyond chance",
        ("bridge.algorithm1",),
        evidence="simulation",
    ),
    _say(
        "Figure 5a",
        "a trained transformer follows least squares, error 0.02 at k = d = 20",
        "empirical",
        "from Garg et al.; at d = 5 and 20 by experiments.garg_linear, where it falls "
        "behind least squares near k = d",
        ("regression.risks.least_squares_risk",),
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
        "and five unchanged; no row has an interval. experiments.prune_llm prints ours "
        "beside them with all that differs",
        ("bridge.algorithm1",),
        (
            "tests/experiments/test_prune_llm_join.py::test_ours_stands_*",
            "tests/experiments/test_prune_llm_join.py::test_a_setting_that_differs_*",
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
