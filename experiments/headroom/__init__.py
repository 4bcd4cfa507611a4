"""Does pruning help a language model with headroom? Algorithm 1, scalars, five seeds.

Command
    python -m experiments.headroom [--preset cpu|million|one_pair|small] [--resume RUN]
        [any field of Config, e.g. --noises 0.15 --recipe.steps 3000]

What it does
    Five language models of small_lm's kind (4 layers of width 64, 188,160 parameters)
    learn from documents whose demonstrations have wrong labels with probability up to
    0.15. Training stops well before the ideal learner's accuracy. Each prompt has six
    demonstrations and two nonce label words of its own; its label noise is that of
    training, or twice that.

    Seven arms change one module of one layer. Four prune: Algorithm 1 (plain SVD in the
    layer of the condition numbers), plain SVD, activation-aware SVD, and magnitude with
    as many parameters. One is a control: random matrices of the same spectrum. Two are
    scalars that prune nothing: a number times the module's output, and a number times
    the attention scores (a temperature; one of the output logits would change no
    answer). All but Algorithm 1, which searches one layer, compare as many settings
    with the unpruned model on 256 validation prompts. Each choice is judged once, on
    1,536 test prompts. The models are the units of the intervals and tests; those of a
    single model on its own prompts were added after the first results.

Time
    cpu       13 min on two cores with as much other work, half of it training.
    million   Five models of 892,672 parameters: about an hour.
    one_pair  As long as cpu: the same models, asked with one pair of label words each.
    small     Two models of width 16 that learn nothing: tests the code.

Expect (cpu)
    accuracy  0.731 +- 0.027 with the label noise of training (ideal learner 0.960), and
              0.629 +- 0.007 with twice that (0.824).
    mean gain over five models, in points [95 % interval], none beyond chance after
              Holm: Algorithm 1 -0.34 [-0.73, +0.05], plain SVD -0.68, magnitude -0.66,
              activation-aware -0.28, random matrices -0.32, scaled output -0.39,
              attention temperature -0.27.
    single    Of 10 searches of each arm none is better beyond chance on the test
              prompts of its model.
    selection Validation overstates the gains by 1.9 points, mean over the arms.

Expect (one_pair)
    Gains of some models that are those of their pair: Algorithm 1 +2.2 [-1.1, +5.5],
    and 3 of its 10 searches better beyond chance, as many as of each scalar.
"""

from experiments.headroom.config import PRESETS as PRESETS
from experiments.headroom.config import Config as Config
from experiments.headroom.main import main as main

__all__ = ["PRESETS", "Config", "main"]
