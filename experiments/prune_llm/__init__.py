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
    tiny    five and a half minutes on two cores with other work, for nearly a million
            answers, more than half of them by other methods than plain SVD. The run
            folder has 218 MB (an earlier run).
    gptj, llama2
            not run on the published weights yet; python -m experiments.prune_llm.cost
            says what they take.

Expect (tiny, the checkpoint of small_lm; numbers in docs/experiments/prune_llm.md)
    checks  pass: rate 0 changes no weight; the quick way gives the plain one's 1,024
            predictions at least 20 times faster; with nonce labels the accuracy rises
            from that of guessing, without demonstrations, to near 1 with 16.
    pruning does not help beyond chance: Algorithm 1 prunes in most pairs of a task and
            a module; the gain on validation does not hold on the test set. Of the whole
            grid on validation none is better after Holm, and some are worse. Over more
            draws of the demonstrations small losses appear.
    depth   the last layer tolerates pruning better than the first in most pairs.
    layer   condition numbers pick the layer of the best validation score in about half
            of the pairs.
    arms    no arm's choice differs from that of Algorithm 1 beyond chance.
    methods at equal parameters, over all rates of the first draw, against plain SVD:
            activation-aware truncation loses least, magnitude slightly less than plain
            SVD, equal singular values more, random directions most. After Holm a few
            rates of each are better; worse are only some of the last two.
    racing  saves little and chooses the same as the full grid: the rates hardly differ,
            and what does not differ cannot be told apart early.
    theory  not applicable: the surrogate's cosine to attention is too small, or
            negative, for some layers and rates. An earlier rank correlation, +0.74 over
            layers and rates together (not stored), is withdrawn: update and accuracy
            both fall with the rate.
    Without demonstrations the nonce task asks for labels that nothing has explained:
    the large changes of Figure 2 there are those of one guess for all examples.
"""

from experiments.prune_llm.config import PRESETS as PRESETS
from experiments.prune_llm.config import Config as Config
from experiments.prune_llm.main import main as main

__all__ = ["PRESETS", "Config", "main"]
