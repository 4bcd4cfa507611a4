"""SVD pruning of a language model: Algorithm 1 and Figures 1 to 4 (Yao et al. 2024).

Command
    python -m experiments.prune_llm [--preset tiny|gptj|llama2] [--resume RUN]
        [--rebuild RUN] [any field of Config, e.g. --task mine.yaml]
    python -m experiments.prune_llm evaluate --model FOLDER --task NAME
        [--prune 26:mlp:0.9 ...] [--help]
    python -m experiments.prune_llm search --model FOLDER --task NAME
        [--budget 50] [--beam 1] [--help]
    python -m experiments.prune_llm export --model FOLDER --prune 26:mlp:0.9 --to NEW
        [--factorised] [--help]

What it does
    Condition numbers of all matrices choose a layer for each module. Every module of
    every layer of the grid is clipped at every rate and answers the validation
    examples, behind all demonstrations and behind fewer (Figures 1 and 2). Algorithm 1
    chooses a rate, and one look at the test set judges it: difference with interval,
    exact paired test, Holm's correction over the table (Figure 4), and again over
    draws and orders of the demonstrations. Races over the rates stand beside the full
    grid, and a linear surrogate of each layer beside the accuracies.

    Five arms run beside Algorithm 1 under the same search budget (--arms): a random
    layer in place of that of the condition numbers, and the same layer with other
    methods that keep as many parameters: equal singular values, activation-aware
    truncation (--calibration names its text), large entries, and random directions of
    the same singular values. The methods are also compared at every rate.

    Where model, task and module are those of Tables 2 to 8 of the paper, our row stands
    beside the published one, with every setting that differs.
    ``python -m experiments.prune_llm.join RUN RUN`` puts runs of several checkpoints or
    modules into one table and the bars of Figure 4;
    ``python -m experiments.prune_llm.cost`` tells what a run will take.

    Every answer is a line of ``answers.jsonl`` as soon as it is there. A run that was
    killed continues with ``--resume`` and asks nothing twice that is written down;
    ``--rebuild`` makes tables and figures again from the folder, without the model.

Time
    tiny    315 s on two cores with other work, for 949,248 answers; 320 s of processor
            time; 57 % of the answers are by other methods than plain SVD. They take
            218 MB.
    gptj, llama2
            not run yet; python -m experiments.prune_llm.cost says what they take.

Expect (tiny, the checkpoint of small_lm)
    checks  pass: rate 0 changes no weight; the quick way gives the plain one's 1,024
            predictions 25 to 78 times faster (on a loaded machine); with nonce labels
            the accuracy rises from 0.36 (0.5 is guessing) to 0.99 with 16
            demonstrations, in the task of four classes from 0.35 to 0.97.
    pruning does not help beyond chance: Algorithm 1 prunes in 5 of 8 pairs of a task
            and a module, with a gain of +0.007 on validation and +0.003 on the test
            set; of 224 (layer, module, rate) none is better after Holm, 15 are worse.
    depth   the last layer tolerates pruning better than the first in 5 of 8 pairs.
    layer   condition numbers pick the layer that gains most in 5 of 8 pairs.
    arms    no arm's choice differs from that of Algorithm 1 beyond chance: its test
            gain is +0.0003 +- 0.0005, theirs are -0.0004 to +0.0007.
    methods at equal parameters, over all rates: against plain SVD activation-aware
            truncation changes the accuracy by +0.002, magnitude by -0.026, equal
            singular values by -0.039, random directions by -0.140; after Holm 0, 4, 7
            and 17 of 56 are worse, none is better.
    racing  saves 6 % of the evaluations and chooses the same in 160 of 160 races: the
            rates hardly differ, and what does not differ cannot be told apart early.
    theory  not applicable: the cosine of the surrogate to attention is -0.51 to +0.82.
            An earlier rank correlation, +0.74 over layers and rates together, is
            withdrawn: update and accuracy both fall with the rate.
    Without demonstrations the nonce task asks for labels that nothing has explained:
    the large changes of Figure 2 there are those of one guess for all examples.
"""

from experiments.prune_llm.config import PRESETS as PRESETS
from experiments.prune_llm.config import Config as Config
from experiments.prune_llm.main import main as main

__all__ = ["PRESETS", "Config", "main"]
