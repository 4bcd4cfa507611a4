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
    cpu     d = 5: about five minutes on two cores; 372 s with other work, of which
            241 s training.
    gpu     d = 10, 6 layers; not measured yet.

Expect (cpu, three seeds; numbers in docs/experiments/prune_icl.md)
    checks        all pass; both models have learned the task.
    like training no (seed, layer, module, rate) of 189 and 60 is better after Holm.
    label noise   pruning helps: some of the 189 and of the 60 after Holm, and Algorithm
                  1 on average. Multiplying all answers by one number below 1, without
                  any pruning, helps more on average; the best pruning beyond that helps
                  a little more.
    skewed inputs nothing for GPT-2; some of 60 for the stack, which fails there anyway.
                  There an exhaustive search gains more than the number.
    depth         pruning harms the first layer most, in all modules; magnitude pruning
                  does as well.
    shots         with fewer shots pruning harms less, since less is there to lose.
    condition     condition numbers of a layer neither grow with depth in general nor
                  say what can be pruned.
"""

from experiments.prune_icl.config import PRESETS as PRESETS
from experiments.prune_icl.config import Config as Config
from experiments.prune_icl.main import main as main

__all__ = ["PRESETS", "Config", "main"]
