"""Yao et al. 2024: noise and generalisation bounds (section 3.3, B.5, C.4)."""

import functools

from experiments.ledger.statement import Statement
from experiments.ledger.yao_trajectories import YAO

__all__ = ["BOUNDS"]

_say = functools.partial(Statement, YAO)

BOUNDS = (
    _say(
        "C_t (definition)",
        "C_t = (N-b)/(b(N-1)) (mean z_i z_i^T - z z^T) is the covariance of b shots",
        "exact",
        "of the mean of b of N gradients drawn without replacement, z_i = N g_i",
        ("noise.noise_covariance", "noise.without_replacement_factor"),
        (
            "test_yao_noise.py::test_C_t_is_the_covariance_*",
            "test_yao_noise.py::test_C_t_vanishes_*",
            "test_yao_noise.py::test_every_route_*",
            "tests/noise/test_spectrum.py::test_no_demonstrations_*",
            "test_yao_noise.py::test_the_gradient_of_the_spectrum_*",
            "test_symbolic_yao.py::test_covariance_of_b_*",
        ),
        evidence="proof",
        source="bounds#the-covariance-of-b-shots",
    ),
    _say(
        "C_t (sum or mean)",
        "G_t is the mean of the gradients, and Theorem 1's is their sum",
        "conditional",
        "b shots must be normalised by 1/b, or their mean is b/N of G_t: a bias, no "
        "noise; the sign is that of grad l_i = -N g_i",
        ("noise.noisy_trajectory", "noise.demonstration_gradients"),
        (
            "test_yao_noise.py::test_the_gradients_of_the_demonstrations_*",
            "test_yao_noise.py::test_a_prompt_of_b_must_*",
        ),
        evidence="numerical",
    ),
    _say(
        "C_t positive definite",
        "C_t is assumed to be positive definite",
        "false as written",
        "rank C_t <= min(N - 1, m), m <= n(n+1)/2 < n^2: singular for every N >= 1 "
        "once n >= 2",
        ("noise.noise_spectrum", "noise.support_dims"),
        (
            "test_yao_noise.py::test_C_t_is_never_positive_definite",
            "test_yao_noise.py::test_the_ceiling_*",
            "test_yao_noise.py::test_support_dimension_*",
            "test_yao_noise.py::test_dimension_of_the_image_*",
            "tests/noise/test_spectrum.py::test_columns_are_independent_*",
            "tests/noise/test_spectrum.py::test_a_deficient_weight_*",
            "test_symbolic_yao.py::test_support_dimension_*",
            "test_symbolic_yao.py::test_covariance_of_a_prompt_*",
        ),
        evidence="proof",
        source="bounds#the-support-of-the-noise",
    ),
    _say(
        "Assumption 1, eq. (4)",
        "W_t = W_{t-1} - eta G_t + eta C_t^{1/2} N_t",
        "conditional",
        "it defines an auxiliary learner, of which mean and covariance are as stated",
        ("noise.noisy_trajectory",),
        (
            "test_yao_noise.py::test_assumption_1_gaussian_*",
            "test_yao_noise.py::test_the_simulated_prompt_*",
        ),
        evidence="simulation",
    ),
    _say(
        "Footnote 4",
        "eq. (4) discretises dW = -grad L dt + (eta C)^(1/2) dtheta",
        "conditional",
        "it is the Euler-Maruyama scheme with one layer as the step; the moments "
        "differ by a term of the order of one layer's update",
        ("noise.path_moments",),
        ("test_yao_footnote4.py::test_*",),
        evidence="numerical",
    ),
    _say(
        "Assumption 1 (independence)",
        "the noise of different layers is independent",
        "false as written",
        "for a prompt of b shots: every layer sees the same demonstrations",
        ("noise.noisy_trajectory",),
        ("test_yao_noise.py::test_assumption_1_independence_*",),
        evidence="simulation",
    ),
    _say(
        "Remark 3",
        "SGD, eq. (4) and in-context learning perform alike",
        "empirical",
        "no theorem: literature is cited",
        evidence="none",
    ),
    _say(
        "Theorem 2 (as printed)",
        "error^2 <= (R^2/N) sum_t E[d log((|dW_t|^2 |1+W|^2 + tr C_t)/d) - tr log C_t]",
        "vacuous",
        "C_t is singular for every prompt (n >= 2), so that the right side is "
        "infinite: no false statement, and none that says anything. With a jitter it "
        "has the logarithm inside the expectation, which is no bound (Lemma 6, second "
        "line)",
        ("bounds.printed_bound",),
        (
            "test_yao_theorem2.py::test_theorem_2_as_printed_*",
            "test_yao_theorem2.py::test_theorem_2_numerators_*",
            "test_yao_theorem2.py::test_theorem_2_logarithm_inside_*",
            "test_symbolic_yao.py::test_covariance_of_a_prompt_*",
        ),
        evidence="proof",
        source="bounds#the-support-of-the-noise",
    ),
    _say(
        "Theorem 2 (corrected)",
        "m_t log(A_1/m_t) - log pdet C_t on the support, logarithm outside",
        "true",
        "support a function of W_{t-1}, N - 1 >= m_t (else infinite), prior "
        "independent of the demonstrations",
        (
            "bounds.noisy_steps",
            "bounds.isotropic_bound",
            "bounds.anisotropic_bound",
            "bounds.held_out_bound",
        ),
        (
            "test_yao_theorem2.py::test_theorem_2_corrected_*",
            "test_yao_theorem2.py::test_theorem_2_gradient_*",
            "test_yao_theorem2.py::test_theorem_2_is_infinite_*",
            "test_yao_theorem2.py::test_theorem_2_jitter_*",
            "test_yao_theorem2.py::test_theorem_2_every_term_*",
            "test_yao_theorem2.py::test_priors_*",
            "test_yao_theorem2.py::test_anisotropic_prior_*",
            "test_yao_theorem2.py::test_held_out_prior_*",
            "test_yao_theorem2.py::test_a_centre_*",
            "tests/bounds/test_statement.py::test_noisy_paths_*",
            "test_yao_theorem2.py::test_a_prior_on_noisy_*",
            "test_yao_theorem2.py::test_an_eager_call_*",
            "test_yao_true_error.py::test_no_valid_variant_*",
            "test_yao_theorem2.py::test_batches_*",
            "test_yao_theorem2.py::test_float32_*",
            "test_yao_theorem2.py::test_bad_*",
        ),
        evidence="proof",
        source="bounds#theorem-2-corrected",
    ),
    _say(
        "Theorem 2 (noise-free)",
        "the bound speaks of the Transformer, which draws no noise",
        "conditional",
        "it is about the learner of Assumption 1; for one without noise, smooth W_L "
        "once and add the change of the loss",
        ("bounds.smoothing_bound",),
        ("test_yao_true_error.py::test_smoothing_*",),
        evidence="proof",
        source="bounds#one-smoothing-for-the-noise-free-transformer",
    ),
    _say(
        "Remark 4",
        "smaller |G_t| or |dW_t| gives a smaller bound",
        "false as written",
        "every term is invariant under G -> a G, C -> a^2 C; pruning can act through "
        "the effective dimension m_t. In SmolLM2-135M clips that make the implicit "
        "update smaller do not go with better accuracy (experiments.real_model)",
        ("bounds.isotropic_bound",),
        (
            "test_yao_remark4.py::test_remark_4_*",
            "test_symbolic_yao.py::test_terms_are_*",
            "tests/experiments/test_real_model_results.py::test_smaller_updates_*",
        ),
        evidence="proof",
        source="bounds#remark-4",
    ),
    _say(
        "Remark 4 (normalisation)",
        "controlling the norm explains the use of normalisation",
        "conditional",
        "normalised demonstrations bound |dW_t| at every depth; not |G_t|, and not the "
        "bound, which for one layer does not depend on the size of the inputs",
        ("trajectory.implicit_update",),
        ("test_yao_remark4_normalization.py::test_remark_4_*",),
        evidence="proof",
        source="trajectories#normalised-demonstrations",
    ),
    _say(
        "Lemma 2",
        "error <= sqrt(2 R^2 I(W; H_s) / N) (Xu and Raginsky)",
        "true",
        "bounds the absolute error; demonstrations iid given the task, a loss that is "
        "sub-Gaussian (clip the squared error)",
        ("bounds.xu_raginsky",),
        (
            "test_yao_lemmas.py::test_lemma_2_*",
            "test_yao_lemmas.py::test_bad_input",
        ),
        evidence="proof",
        source="bounds#lemma-2",
    ),
    _say(
        "Lemma 3",
        "I(W_L; H_s) <= sum_t I(G~_t; H_s | W_{t-1})",
        "true",
        "W_0 independent of H_s, and noise drawn afresh in every layer: one that is "
        "handed back is a counter-example",
        ("bounds.trajectory_information",),
        ("test_yao_lemmas.py::test_lemma_3_*",),
        evidence="proof",
        source="bounds#lemmas-3-to-5",
    ),
    _say(
        "Eqs. (14)-(15)",
        "data processing, then the chain rule over the path",
        "true",
        "the step size drops out: an invertible map",
        ("bounds.trajectory_information",),
        ("test_yao_lemmas.py::test_lemma_3_information_*",),
        evidence="proof",
        source="bounds#lemmas-3-to-5",
    ),
    _say(
        "Lemma 4",
        "I(X; Y) = min_P E KL(Q_{Y|X} || P)",
        "exact",
        "by E KL(Q_{Y|X} || P) = I(X; Y) + KL(Q_Y || P)",
        ("bounds.gaussian_kl",),
        ("test_yao_lemmas.py::test_lemma_4_*",),
        evidence="proof",
        source="bounds#lemmas-3-to-5",
    ),
    _say(
        "Lemma 5",
        "the same for I(G~_t; H_s | W_{t-1}), a prior for each W_{t-1}",
        "true",
        "the inner expectation is over H_s given W_{t-1}",
        ("bounds.isotropic_term", "bounds.anisotropic_term"),
        ("test_yao_lemmas.py::test_lemma_5_*",),
        evidence="proof",
        source="bounds#lemmas-3-to-5",
    ),
    _say(
        "Eq. (16)",
        "KL between N(-G, C) and an isotropic Gaussian",
        "conditional",
        "if C_t is positive definite, on its support otherwise; the expectation is "
        "over H_s given W_{t-1}: with H_s drawn afresh it is no bound",
        ("bounds.gaussian_kl",),
        (
            "test_yao_lemmas.py::test_eq_16_is_*",
            "test_yao_lemmas.py::test_eq_16_expectation_*",
        ),
        evidence="proof",
        source="bounds#the-optimal-isotropic-prior",
    ),
    _say(
        "Eq. (17)",
        "its optimum in sigma is A_1/d with value (d log(A_1/d) - A_2)/2",
        "exact",
        "where eq. (16) is",
        ("bounds.optimal_prior_variance", "bounds.isotropic_term"),
        (
            "test_yao_lemmas.py::test_eq_17_*",
            "test_symbolic_yao.py::test_isotropic_optimum_*",
        ),
        evidence="proof",
        source="bounds#the-optimal-isotropic-prior",
    ),
    _say(
        "Lemma 6, first line",
        "error^2 <= (R^2/N) sum_t E[d log(A_1/d) - A_2]",
        "true",
        "on the support, the logarithm outside the inner expectation",
        ("bounds.bound_from_expectations",),
        (
            "test_yao_lemmas.py::test_lemma_6_first_line_*",
            "test_yao_lemmas.py::test_lemma_6_best_prior_*",
            "test_yao_lemmas.py::test_nan_is_not_hidden_*",
        ),
        evidence="proof",
        source="bounds#theorem-2-corrected",
    ),
    _say(
        "Lemma 6, second line",
        "equals the same with the logarithm inside the expectation",
        "false as written",
        "Jensen: it is smaller, and below the information itself. In a Gaussian "
        "channel with N = 1, which is not a prompt, it is 0.000 where the error is "
        "0.500; no prompt with an error above it is known",
        ("bounds.log_inside_bound", "bounds.bound_from_expectations"),
        (
            "test_yao_lemmas.py::test_lemma_6_first_line_*",
            "test_yao_theorem2.py::test_theorem_2_as_printed_is_below_*",
            "test_symbolic_yao.py::test_gaussian_channel_*",
        ),
        evidence="proof",
        source="bounds#lemma-6-second-line",
    ),
    _say(
        "C.4",
        "implicit gradients are noisy below a threshold N of shots, and by training",
        "empirical",
        "measured by experiments.implicit_noise",
        evidence="simulation",
    ),
)
