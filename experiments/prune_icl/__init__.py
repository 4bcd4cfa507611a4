"""SVD pruning of models that learned regression in context (Yao et al. 2024).

Command
    python -m experiments.prune_icl [--preset cpu|gpu] [--resume RUN]
        [any field of Config, e.g. --top-k 1 --gpt2.steps 1000]

What it does
    The paper asks whether its findings hold beyond language. GPT-2 and a stack of
    linear attention learn noise-free regression, three seeds each. Every module and
    matrix of every layer is clipped to every rank, and the errors are compared prompt
    by prompt with the unpruned model's, on prompts like those of training, with label
    noise, and with skewed inputs. Layers and rates are chosen on validation prompts, by
    Algorithm 1 and by an exhaustive search, and judged on others. Two controls: no
    pruning, but all answers times one number, and magnitude pruning at equal storage.

Time
    cpu     d = 5: 372 s on two cores with other work, of which 241 s training; 79 s of
            sweeps on two quiet ones.
    gpu     d = 10, 6 layers; not measured yet.

Expect (cpu, three seeds)
    checks        all pass; error / d of GPT-2 0.026 at k = 10, of the stack 0.0002.
    like training no (seed, layer, module, rate) of 189 and 60 is better after Holm.
    label noise   pruning helps: 9 of 189 and 15 of 60 after Holm, at most -11 % and
                  -30 %; Algorithm 1 -7 % on average. Multiplying all answers by 0.84
                  without any pruning: -19 %; the best pruning beyond that: -6 %.
    skewed inputs nothing for GPT-2; 16 of 60 for the stack, which fails there anyway.
    depth         pruning harms the first layer most, in all modules; magnitude pruning
                  does as well.
    shots         with fewer shots pruning harms less, since less is there to lose.
    condition     neither grows with depth nor says what can be pruned.
"""

from experiments.prune_icl.config import PRESETS as PRESETS
from experiments.prune_icl.config import Config as Config
from experiments.prune_icl.main import main as main

__all__ = ["PRESETS", "Config", "main"]
