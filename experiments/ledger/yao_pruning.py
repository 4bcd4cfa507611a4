"""Yao et al. 2024: what pruning does (sections 2 and 3.4, Remark 5, B.6, C.2)."""

import functools

from experiments.ledger.statement import Statement
from experiments.ledger.yao_trajectories import YAO

__all__ = ["PRUNING"]

_say = functools.partial(Statement, YAO)

PRUNING = (
    _say(
        "Section 2 (xi -> r)",
        "clipping rate xi = 1 - r / min(m, n)",
        "conditional",
        "only min(m, n) - 1 rates in (0, 1) exist; any other is rounded down exactly, "
        "r = floor((1 - xi) min(m, n)); r = 0 is an error and xi = 0 is W itself",
        ("pruning.rank_for_rate", "pruning.clip"),
        (
            "tests/pruning/test_rates.py::test_*",
            "tests/pruning/test_clip.py::test_rate_zero_*",
        ),
        evidence="exact arithmetic",
    ),
    _say(
        "Eq. (18)",
        "the Frobenius norm of an outer product is its largest singular value",
        "exact",
        "and the product of the two norms",
        ("linalg.singular_values",),
        ("test_examples.py::test_equation_18_*",),
        evidence="proof",
        source="trajectories#norms-and-singular-values",
    ),
    _say(
        "Eq. (19)",
        "|A B|_F <= |A|_F |B|_F",
        "true",
        "tighter: |A|_F |B|_2",
        ("linalg.singular_values",),
        ("test_examples.py::test_equation_19_*",),
        evidence="proof",
        source="trajectories#norms-and-singular-values",
    ),
    _say(
        "Eq. (20)",
        "|A + B|_F^2 <= |A|_F^2 + |B|_F^2",
        "false as written",
        "if and only if <A, B> <= 0; an equality for the two parts of an SVD, also "
        "after one more factor, but not between two factors",
        ("pruning.frobenius_split", "pruning.update_split"),
        ("test_examples.py::test_equation_20_*",),
        evidence="proof",
        source="trajectories#norms-and-singular-values",
    ),
    _say(
        "Example 1 (display)",
        "|W_V h|^2 is that of the kept part and that of the removed one",
        "exact",
        "with parentheses around W_r + delta",
        ("pruning.frobenius_split",),
        ("test_examples.py::test_example_1_first_display_*",),
        evidence="proof",
        source="trajectories#pruned-updates",
    ),
    _say(
        "Example 1 (UB)",
        "UB = sum_i |W_V h_i (x) W_K h_i|^2 |W_Q|^2 bounds |dW|^2",
        "false as written",
        "N UB does, and N equal demonstrations attain it; at the first layer UB bounds "
        "the sum of |g_i|^2",
        ("pruning.update_upper_bound",),
        (
            "test_examples.py::test_example_1_ub_*",
            "test_examples.py::test_example_1_the_three_numbers_*",
        ),
        evidence="proof",
        source="trajectories#pruned-updates",
    ),
    _say(
        "Example 1 (*)",
        "UB falls when W_V or W_K is pruned, by eq. (18)",
        "true",
        "of UB, which is no bound of |dW|^2",
        ("pruning.update_upper_bound",),
        ("test_examples.py::test_example_1_pruning_lowers_ub",),
        evidence="proof",
        source="trajectories#pruned-updates",
    ),
    _say(
        "Example 1 (**)",
        "|A|_F^2 = sum_i sigma_i(A)",
        "false as written",
        "sum_i sigma_i(A)^2; that UB falls when W_Q is pruned stands",
        ("linalg.singular_values",),
        ("test_examples.py::test_line_double_star_*",),
        evidence="proof",
        source="trajectories#norms-and-singular-values",
    ),
    _say(
        "Remark 5",
        "pruning layer k invariably changes later updates, L - k + 1 in all: deep "
        "layers act more steadily",
        "conditional",
        "t < k is untouched exactly; t >= k (not t > k) changes for generic weights, "
        "not invariably; steadiness does not follow: with the weights of gradient "
        "descent every later G_t grows",
        ("pruning.depth_table",),
        ("test_yao_remark5.py::test_*",),
        evidence="proof",
        source="trajectories#the-clipping-of-one-layer",
    ),
    _say(
        "Case 1 (identity)",
        "W (l_1/lambda_1 x_1 + l_2/lambda_2 x_2) = l_1 x_1 + l_2 x_2",
        "exact",
        "for eigenvalues other than 0",
        ("linalg.condition_number",),
        ("test_yao_algorithm1.py::test_case_1_decomposition_*",),
        evidence="numerical",
    ),
    _say(
        "Case 1 (conditioning)",
        "ill conditioned where lambda_1 >> lambda_2",
        "conditional",
        "for normal W; otherwise singular values say it, not eigenvalues. After "
        "pruning it is sigma_1 / sigma_r that is finite",
        ("linalg.condition_number",),
        (
            "test_yao_algorithm1.py::test_case_1_eigenvalues_*",
            "test_yao_algorithm1.py::test_case_1_the_condition_number_*",
        ),
        evidence="numerical",
    ),
    _say(
        "Algorithm 1 (layer)",
        "the deepest of the layers with the top-k condition numbers",
        "conditional",
        "k and how the matrices of a module become one number decide the layer, and "
        "neither is given: both are arguments",
        ("pruning.choose_layers", "pruning.module_spectra"),
        ("test_yao_algorithm1.py::test_algorithm_1_layer_*",),
        evidence="numerical",
    ),
    _say(
        "Algorithm 1 (rate)",
        "the best rate on a validation set, from score* = 0",
        "false as written",
        "start from the score of the model that is not pruned: from 0, a rate that is "
        "worse wins, and negative scores never do. The best of several also looks "
        "better than it is",
        ("pruning.choose_rate",),
        (
            "test_yao_algorithm1.py::test_algorithm_1_as_printed_*",
            "test_yao_algorithm1.py::test_algorithm_1_initialisation_*",
            "test_yao_algorithm1.py::test_algorithm_1_ties_*",
            "test_yao_algorithm1.py::test_algorithm_1_nan_*",
            "test_yao_algorithm1.py::test_algorithm_1_the_best_*",
            "tests/pruning/test_choice.py::test_*",
        ),
        evidence="numerical",
    ),
    _say(
        "Example 2 (W_Q)",
        "pruning W_Q lowers |dW|",
        "exact",
        "an equality of squares, W_Q being outermost; false for |G_t|, t >= 2",
        ("pruning.update_split",),
        (
            "test_examples.py::test_examples_2_to_4_exact_*[W_Q*]",
            "test_examples.py::test_examples_2_and_3_for_the_implicit_gradient_*",
            "test_examples.py::test_the_split_*[W_Q]",
            "test_symbolic_yao.py::test_squares_of_*",
        ),
        evidence="proof",
        source="trajectories#pruned-updates",
    ),
    _say(
        "Example 3 (W_V)",
        "pruning W_V lowers the bound of |dW|",
        "exact",
        "an equality of squares for |dW_k| and |G_k| themselves",
        ("pruning.update_split",),
        (
            "test_examples.py::test_examples_2_to_4_exact_*[W_V*]",
            "test_examples.py::test_examples_2_and_3_for_the_implicit_gradient_*",
            "test_examples.py::test_the_split_*[W_V]",
            "test_examples.py::test_gradients_survive_*",
            "test_symbolic_yao.py::test_squares_of_*",
        ),
        evidence="proof",
        source="trajectories#pruned-updates",
    ),
    _say(
        "Example 3 (W_K)",
        "the same is true for W_K",
        "false as written",
        "for UB only: |dW| itself can grow, and from 0 to 2 in whole numbers",
        ("pruning.update_split",),
        (
            "test_examples.py::test_examples_3_and_4_false_*[W_K*]",
            "test_examples.py::test_example_3_counter_example_*",
            "test_examples.py::test_the_split_*[W_K]",
            "test_symbolic_yao.py::test_squares_of_*",
        ),
        evidence="proof",
        source="trajectories#pruned-updates",
    ),
    _say(
        "Example 4 (W_MLP)",
        "pruning W_MLP lowers |dW''|",
        "exact",
        "an equality of squares for the product W_out W_in and for W_out",
        ("pruning.update_split",),
        (
            "test_examples.py::test_examples_2_to_4_exact_*[W_MLP*]",
            "test_examples.py::test_examples_2_to_4_exact_*[W_out*]",
            "test_examples.py::test_the_split_*[W_MLP]",
            "test_examples.py::test_the_split_*[W_out]",
            "test_examples.py::test_bad_input",
        ),
        evidence="proof",
        source="trajectories#pruned-updates",
    ),
    _say(
        "Example 4 (in practice)",
        "the same where W_in and W_out are pruned each by itself",
        "false as written",
        "it can raise the norm, and so can W_in alone",
        ("pruning.update_split",),
        (
            "test_examples.py::test_examples_3_and_4_false_*[W_in*]",
            "test_examples.py::test_example_4_false_*",
            "test_examples.py::test_the_split_*[W_in]",
        ),
        evidence="numerical",
    ),
)
