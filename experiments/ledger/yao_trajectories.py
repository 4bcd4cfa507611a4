"""Yao et al. 2024: attention, implicit gradients, softmax and MLP (3.1, 3.2, B.1-4)."""

import functools

from experiments.ledger.statement import Statement

__all__ = ["TRAJECTORIES", "YAO"]

YAO = "Yao et al. 2024 (arXiv 2406.03768)"
_say = functools.partial(Statement, YAO)

TRAJECTORIES = (
    _say(
        "Eq. (1)",
        "softmax attention with residual, the mask M outside the softmax",
        "exact",
        "as a definition: the demonstrations' weights sum to less than 1, and the "
        "query's own key keeps the rest",
        ("attention.softmax_attention", "attention.softmax_weights"),
        (
            "test_yao_softmax_and_mlp.py::test_eq_1_and_2_*",
            "tests/attention/test_attention.py::test_softmax_*",
        ),
        evidence="numerical",
    ),
    _say(
        "Eq. (2)",
        "the query's row of eq. (1)",
        "exact",
        functions=("attention.softmax_attention",),
        tests=("test_yao_softmax_and_mlp.py::test_eq_1_and_2_*",),
        evidence="numerical",
    ),
    _say(
        "Eq. (3)",
        "linear attention: softmax and scale dropped",
        "exact",
        "as a definition; it is not an approximation of eq. (2)",
        ("attention.linear_attention",),
        (
            "test_yao_lemma1.py::test_eq_3_*",
            ""
            "tests/attention/test_attention.py::test_linear_layer_equals_the_double_loop",
        ),
        evidence="numerical",
    ),
    _say(
        "Lemma 1",
        "one linear layer adds dW h with dW = sum_i W_V h_i (W_K h_i)^T W_Q",
        "exact",
        "the query must be no key: causal or the papers' mask; dW is minus the "
        "gradient of a linear loss",
        ("trajectory.implicit_update",),
        (
            "test_yao_lemma1.py::test_lemma_1_*",
            "test_yao_lemma1.py::test_no_demonstrations_*",
            "test_symbolic_yao.py::test_products_of_*",
        ),
        evidence="proof",
        source="trajectories#lemma-1",
    ),
    _say(
        "Eqs. (5)-(8)",
        "attention is the dual form of a step of gradient descent",
        "exact",
        "of a loss that is linear in W, so that the gradient is the same everywhere",
        ("trajectory.implicit_update",),
        ("test_yao_lemma1.py::test_lemma_1_dual_form_*",),
        evidence="proof",
        source="trajectories#lemma-1",
    ),
    _say(
        "Remark 1 (rank)",
        "rank dW <= rank H_s <= N",
        "true",
        "sharper: at most the least of the ranks of W_V H_s, W_K H_s and W_Q",
        ("trajectory.implicit_update",),
        ("test_yao_lemma1.py::test_remark_1_*",),
        evidence="proof",
        source="trajectories#lemma-1",
    ),
    _say(
        "Remark 1 (order)",
        "the model is sensitive to the order of the demonstrations",
        "conditional",
        "for causal demonstrations; with the papers' mask the stack is permutation "
        "invariant",
        ("attention.LinearAttentionStack",),
        ("test_yao_theorem1.py::test_remark_1_*",),
        evidence="proof",
        source="trajectories#theorem-1",
    ),
    _say(
        "Remark 1 (place)",
        "which places of the prompt count more",
        "exact",
        "the text names no places; with a causal mask and gradient steps the later "
        "ones: the weights of the labels are exact, and tend to a Laguerre polynomial",
        ("regression.position.label_weights", "regression.position.limit_profile"),
        ("test_yao_remark1_position.py::test_*",),
        evidence="proof",
        source="trajectories#the-place-of-a-demonstration",
    ),
    _say(
        "Theorem 1 (identity)",
        "G_t = dW_t (1 + W_{t-1}), h^t = (1 + W_t) h^0 for the query",
        "exact",
        "1 + W_t is the product of 1 + dW_s, s <= t",
        ("trajectory.implicit_gd", "trajectory.implicit_gd_norms"),
        (
            "test_yao_theorem1.py::test_theorem_1_trajectory_*",
            "test_yao_theorem1.py::test_theorem_1_is_a_product_*",
            "test_yao_theorem1.py::test_growth_is_by_degree",
            "tests/trajectory/test_trajectory.py::test_every_path_equals_the_loops",
            "test_symbolic_yao.py::test_products_of_*",
        ),
        evidence="proof",
        source="trajectories#theorem-1",
    ),
    _say(
        "Theorem 1 (display)",
        "h^t = h^0 + sum_{j <= t} G_t h^0",
        "false as written",
        "a slip: the sum is over G_j",
        ("trajectory.implicit_gd",),
        ("test_yao_theorem1.py::test_theorem_1_sum_over_G_t_*",),
        evidence="proof",
        source="trajectories#theorem-1",
    ),
    _say(
        "Theorem 1 (mask)",
        "demonstrations and query go through the layers under the mask M",
        "conditional",
        "any evolution of the demonstrations will do; the query must be no key, or "
        "W_L depends on it. Under M all tokens evolve by one matrix",
        ("trajectory.implicit_gd",),
        (
            "test_yao_theorem1.py::test_theorem_1_holds_however_*",
            "test_yao_theorem1.py::test_without_the_mask_*",
            "test_yao_theorem1.py::test_corollary_*",
        ),
        evidence="proof",
        source="trajectories#theorem-1",
    ),
    _say(
        "Remark 2",
        "given the weights, G_t depends on W_{t-1} and H_s alone",
        "conditional",
        "with the papers' mask: G_t = W_V P S P^T W_K^T W_Q P, P = 1 + W_{t-1}, "
        "S = H_s^T H_s with tokens as rows; not for causal demonstrations",
        ("trajectory.implicit_gd",),
        (
            "test_yao_theorem1.py::test_remark_2_*",
            "test_symbolic_yao.py::test_products_of_*",
        ),
        evidence="proof",
        source="trajectories#theorem-1",
    ),
    _say(
        "G_t is a gradient",
        "the trajectory is gradient descent",
        "conditional",
        "for the weights of gradient descent; for generic weights W -> G is no "
        "gradient field",
        ("trajectory.implicit_gd", "constructions.gradient_descent"),
        (
            "test_yao_theorem1.py::test_implicit_gradients_*",
            "test_yao_theorem1.py::test_residual_identity_*",
        ),
        evidence="numerical",
    ),
    _say(
        "Eq. (13)",
        "G_1 = dW_1, G_2 = dW_2 (1 + G_1), ..., G_L",
        "exact",
        "",
        ("trajectory.implicit_gd",),
        ("test_yao_theorem1.py::test_theorem_1_is_a_product_*",),
        evidence="proof",
        source="trajectories#theorem-1",
    ),
    _say(
        "B.2, eq. (9)",
        "softmax as D^{-1} A_u with D = diag(A_u 1_N)",
        "false as written",
        "A_u diag(1^T A_u)^{-1}: the sum is over keys, and there are N + 1",
        ("attention.softmax_weights",),
        ("test_yao_softmax_and_mlp.py::test_eq_9_*",),
        evidence="numerical",
    ),
    _say(
        "B.2, eq. (10)",
        "exp(x^T y) is a Gaussian kernel between two norms",
        "exact",
        "on the width of the keys, not on dout",
        ("attention.taylor_features",),
        ("test_yao_softmax_and_mlp.py::test_eq_10_*",),
        evidence="numerical",
    ),
    _say(
        "B.2, eq. (11)",
        "A_u(i, j) = phi(W_K h_i)^T phi(W_Q h_j)",
        "exact",
        "the printed last index i is j; Taylor features make it explicit, positive "
        "random features are unbiased",
        ("attention.taylor_features", "attention.positive_features"),
        (
            "test_yao_softmax_and_mlp.py::test_eq_12_taylor_*",
            "test_yao_softmax_and_mlp.py::test_positive_features_*",
        ),
        evidence="numerical",
    ),
    _say(
        "B.2, eq. (12)",
        "softmax attention moves the query by dW' phi(W_Q h)",
        "exact",
        "dW' depends on the query through D'; only D' dW' does not, so that no "
        "Theorem 1 follows for a stack",
        ("attention.softmax_kernel_view",),
        (
            "test_yao_softmax_and_mlp.py::test_eq_12_the_kernel_view_*",
            "test_yao_softmax_and_mlp.py::test_only_the_operator_*",
            "test_yao_softmax_and_mlp.py::test_kernel_view_*",
        ),
        evidence="numerical",
    ),
    _say(
        "B.2 (rank)",
        "rank dW' <= rank H_s <= N",
        "true",
        "sharper: at most rank W_V H_s, whatever the features",
        ("attention.softmax_kernel_view",),
        ("test_yao_softmax_and_mlp.py::test_rank_of_the_operator_*",),
        evidence="proof",
        source="trajectories#lemma-1",
    ),
    _say(
        "B.3 (linear)",
        "with an MLP after attention dW'' = W_out W_in dW",
        "exact",
        "if the MLP is linear; with relu the same holds with the gates of the query",
        ("trajectory.implicit_update_mlp", "attention.mlp_attention"),
        (
            "test_yao_softmax_and_mlp.py::test_b_3_update_*",
            "test_yao_softmax_and_mlp.py::test_b_3_linear_*",
            "test_yao_softmax_and_mlp.py::test_b_3_gated_*",
        ),
        evidence="numerical",
    ),
    _say(
        "B.3 (relaxation)",
        "relu may be dropped for qualitative analysis",
        "false as written",
        "the error is as large as the output; the best slope is 1/2, with 0.71",
        ("attention.mlp_attention",),
        ("test_yao_softmax_and_mlp.py::test_b_3_dropping_*",),
        evidence="numerical",
    ),
)
