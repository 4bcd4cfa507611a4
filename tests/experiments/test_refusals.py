"""Options that no experiment can run with: one line names the mistake.

What all configs have in common (least values, ranges, seeds) is in ``test_config.py``.
"""

import importlib

import pytest

# By experiment, options of its preset cpu and the message.
REFUSED = {
    "bound_vs_error": {
        "--rows 1 5 5 1": "rows: expected d_in, b, L >= 1 and N > b",
        "--rows 0 5 2 1": "rows: expected d_in, b, L >= 1 and N > b",
        "--generic 5 9": "rows: expected d_in, b, L >= 1 and N > b",
        "--replicates 100": "replicates: expected a power of two from 16",
        "--work 0": "work: expected a number above 0, got 0",
        "--targets 2": "targets: expected values in (0, 2), got 2",
        "--preset huge": "preset: expected one of cpu, gpu, paper, got huge",
    },
    "cot": {
        "--seeds 1": "seeds: expected at least two seeds, all distinct",
        "--lengths 10 5": "lengths: expected ascending whole numbers >= 1, got",
        "--compare-lengths 10": "compare_lengths: expected odd numbers",
        "--rho-of-taus 0.5": "rho: expected p1 + p2 <= 1 with",
    },
    "depth": {
        "--lengths 20": "lengths: expected one for each of 3 dims",
        "--free-layers 7": "free_layers: expected at most max_layers = 6",
        "--draws 15": "draws: expected at least 16, got 15",
    },
    "finite_pretraining": {
        "--fits 3": "fits: expected one for each of 3 dims, got (3,)",
        "--fits 3 1 2": "fits: expected at least 2 each, got (3, 1, 2)",
        "--ratios 0": "ratios: expected values above 0, got (0.0,)",
        "--small-fits 1": "small_fits: expected at least 2, got 1",
    },
    "garg_linear": {
        "--resume nowhere": "resume: expected a run folder",
        "--num-points 4": "num_points: expected at least 2 dim + 1 = 11, got 4",
        "--optimizer.name lion": "optimizer: expected one of",
        "--seeds 1 1": "seeds: expected at least one seed, all",
        "--snapshots": "snapshots: expected at least one value",
        "--task sparse --targets posterior": "labels with the task sparse, whose",
        "--task sparse --family.sparsity 6": "expected at most dim = 5, got 6",
        "--baselines.network.learning-rate 0": "a number above 0, got 0",
        "--task sparse --eval-shifts": "eval_shifts: expected the task linear, got",
    },
    "gradient_flow": {
        "--null-dim 5": "null_dim: expected 1 to dim - 1 = 4, got 5",
        "--dims 2": "lengths: expected one for each of 1 dims, got 4",
        "--condition 0.5": "condition: expected at least 1, got 0.5",
        "--batch-sizes": "batch_sizes: expected at least one value, each above 0",
        "--sgd-steps 30": "sgd_steps: expected a multiple of 40, got 30",
    },
    "head_staircase": {
        "--eigenvalues 1 2": "eigenvalues: expected at least two, decreas",
        "--scales 0": "scales: expected at least one value, each above 0",
        "--sgd-steps 150": "sgd_steps: expected a multiple of 20, got 150",
    },
    "implicit_noise": {
        "--shots 0": "shots: expected numbers from 1 to 20, got (0,)",
        "--shots 21": "shots: expected numbers from 1 to 20, got (21,)",
        "--queries 31": "queries: expected an even number from 2 dim = 10",
        "--parts 2": "parts: expected at least one value, each in [0, 1]",
        "--gpt2.num-points 10": "gpt2.num_points: expected at least 2 dim",
        "--stack.model gpt2": "model: expected gpt2 and linear",
        "--gpt2.seeds 0 1": "gpt2: expected one seed",
        "--stack.steps 50 --stack.optimizer.warmup-steps 100": "warmup_steps: expected "
        "at most 50, got 100",
    },
    "ltb_gap": {
        "--dims": "dims: expected at least one value, each above 0, got ()",
        "--noise-var -1": "noise_var: expected at least 0, got -1",
    },
    "ltb_gpt2": {
        "--mean 0": "mean: expected a value other than 0, got 0",
        "--recipe.dim 1": "recipe.dim: expected at least 2, got 1",
        "--recipe.model linear": "recipe: expected model gpt2, mlp True",
        "--recipe.seeds 1 1": "recipe.seeds: expected distinct seeds",
        "--recipe.task-mean 10": "recipe: expected model gpt2, mlp True",
        "--recipe.loss-points all": "recipe: expected the loss of the last",
        "--recipe.snapshots 7": "snapshots: expected multiples",
        "--recipe.optimizer.name lion": "optimizer: expected one of",
    },
    "mechanisms": {
        "--features.dominant 0.1": "features.dominant: expected a number in",
        "--kernels.depths 3 1": "kernels.depths: expected ascending numbers",
        "--heads.block 2000": "heads.block: expected at most",
        "--gpt2.model linear": "gpt2: expected a gpt2 on interleaved tokens",
        "--gpt2.num-points 3": "gpt2.num_points: expected at least 4, got 3",
    },
    "pattern_dynamics": {
        "--every 7": "every: expected a divisor of steps 500, got 7",
        "--window 4": "window: expected an odd number, got 4",
        "--shares 0.5 1 0.2": "shares: expected three or more shares",
        "--scales -1 1": "scales: expected pairs of positive numbers",
    },
    "pattern_icl": {
        "--sums 1.5": "sums: expected M1' S_1^2 <= M1, got 3 * 1.5^2",
        "--gpt-sums -1.6": "sums: expected M1' S_1^2 <= M1",
        "--lengths 2 21": "expected at most the 20 contexts",
        "--alphas 1": "alphas: expected two or more",
        "--alpha-steps 25": "alpha_steps: expected a multiple of alpha_every",
        "--figures.record-every 7": "record_every: expected a divisor of steps",
        "--figures.step-size 0": "step_size: expected",
        "--figures.num-neurons 3": "num_neurons: expected",
        "--gpt.num-heads 3": "num_heads: expected a divisor",
    },
    "pattern_layers": {
        "--sums 1.5 1.1 0.5": "sums: expected M1' S_1^2 <= M1",
        "--sums 1.1 0.9": "low: expected one of the sums",
        "--low 1.1": "low, high: expected low < 1 <= high",
        "--layers.seeds 1": "layers.seeds: expected at least two seeds",
        "--layers.shifts 1 2 3 4 5": "layers.shifts: expected fewer than 5",
        "--ring 7": "shifts: expected distinct numbers from 1 to 5",
        "--ring 1 2 3": "ring: expected fewer shifts than",
    },
    "pattern_pruning": {
        "--coefficient-sum 1.5": "sums: expected M1' S_1^2 <= M1",
        "--rates 0.1 0.2": "rates: expected 0 and then ascending rates below 1",
        "--gpt-rates 0 1": "gpt_rates: expected 0 and then ascending rates below 1",
        "--ranks 1 31": "ranks: expected r (m + n) <= m n in every matrix",
        "--gpt-seeds 1": "gpt_seeds: expected at least two seeds",
    },
    "position": {
        "--step-size 2": "step_size: expected a number in (0, 2), got 2",
        "--long-prompt 30": "long_prompt: expected a multiple of 20, got 30",
        "--gpt2.model linear": "gpt2.model: expected gpt2, got linear",
        "--gpt2.steps 0": "steps: expected at least 1, got 0",
        "--gpt2.num-points 1": "num_points: expected at least 2, got 1",
        "--gpt2.seeds": "seeds: expected at least one, got none",
        "--gpt2.checkpoint-every 0": "checkpoint_every: expected at least 1, got 0",
        "--gpt2.num-heads 0": "num_heads: expected at least 1, got 0",
        "--gpt2.noise-var -1": "noise_var: expected at least 0, got -1",
    },
    "prune_icl": {
        "--gpt2-ranks 64": "gpt2_ranks: expected at least two ranks",
        "--linear-ranks 6 0": "linear_ranks: expected at least two ranks",
        "--top-k 9": "top_k: expected 1 to 3 layers, got 9",
        "--gpt2.num-points 5": "gpt2.num_points: expected at least 2 dim + 1",
        "--linear.seeds 3": "linear.seeds: expected at least two seeds",
    },
    "recurrent_learners": {
        "--persistences 1.5": "persistences: expected at least one value, each in [0, ",
    },
    "small_lm": {
        "--language.noise 1": "noise: expected a number in [0, 1), got 1",
        "--curriculum.words-from 0.5": "words_from: expected a share below",
        "--lengths 5 53 101": "lengths: expected at least one value, each at least 7",
        "--lengths 53": "lengths: expected 3 and as many",
    },
    "softmax_attention": {
        "--lengths 4": "lengths: expected at least one value, each at least 5",
        "--others 10": "others: expected the lengths",
        "--heads 3": "heads: expected 1 and some of 2 and 4",
    },
    "supersample": {
        "--shots 11": "shots: expected at most 10",
        "--ranks 32": "ranks: expected ranks >= 1, first the width 64",
        "--pattern-steps 7": "pattern_steps: expected multiples of 20",
        "--language-tasks news": "language_tasks: expected some of topic",
        "--gpt2.model linear": "gpt2.model: expected gpt2, got linear",
        "--gpt2.seeds 0 1": "gpt2.seeds: expected one",
    },
    "task_diversity": {
        "--pool-sizes 4 1 0": "pool_sizes: expected two or more ascending",
        "--pool-sizes 1 4": "pool_sizes: expected two or more ascending",
        "--pool-sizes 0 1 4": "pool_sizes: expected two or more ascending",
        "--recipe.noise-var 0": "recipe.noise_var: expected a value > 0",
        "--recipe.task-mean 1": "recipe.task_mean: expected 0",
        "--recipe.model linear": "recipe: expected model gpt2",
        "--recipe.snapshots 0": "recipe.snapshots: expected none",
    },
    "trajectories": {
        "--ranks 6": "ranks: expected at least one rank, each from 1 to 5",
        "--ranks 0": "ranks: expected at least one rank, each from 1 to 5",
        "--shots 33": "shots: expected 1 to 32, got 33",
        "--linear.model gpt2": "linear.model: expected linear, got gpt2",
        "--linear.num-layers 1": "linear.num_layers: expected at least 2, got 1",
    },
    "which_algorithm": {
        "--num-prompts 4": "num_prompts: expected at least 8, got 4",
        "--gpt2.noise-var 0": "gpt2: expected a gpt2 with noise_var > 0",
        "--tasks.seeds 1 2": "tasks.seeds: expected one seed",
        "--gpt2.snapshots": "gpt2.snapshots: expected at least one step",
        "--tasks.snapshots 0": "tasks.snapshots: expected none, got (0,)",
        "--layers 0": "layers: expected numbers of layers >= 1",
        "--pools 0": "pools: expected sizes >= 1, got (0,)",
        "--shots 8": "shots: expected numbers from 1 to 7, got (8,)",
        "--language.questions 1": "questions: expected at least 2, got 1",
    },
}


@pytest.mark.parametrize(
    ("name", "options"), [(name, line) for name in REFUSED for line in REFUSED[name]]
)
def test_impossible_options_are_refused_before_anything_is_written(
    name, options, tmp_path
):
    experiment, folder = importlib.import_module(f"experiments.{name}"), tmp_path / "x"
    with pytest.raises(ValueError, match="expected") as caught:
        experiment.main(["--preset", "cpu", "--output", str(folder), *options.split()])
    assert REFUSED[name][options] in str(caught.value)
    assert not folder.exists()
