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
    cpu       About a quarter of an hour on two cores with as much other work, a quarter
              to half of it training.
    million   Five models of 892,672 parameters (5 layers of width 128): about an hour.
    one_pair  As long as cpu: the same models, asked with one pair of label words each.
    small     Two models of width 16 that learn nothing: tests the code.

Expect (cpu and million; docs/experiments/headroom.md has the numbers)
    accuracy  Far below that of the ideal learner, with the label noise of training and
              with twice that.
    mean gain Over five models, on the test prompts: beyond chance after Holm for no
              arm; all are within a point of 0.
    single    Of 10 searches of each arm none is better beyond chance on the test
              prompts of its model.
    selection Validation overstates the gains, by one to three points for most arms.

Expect (one_pair)
    Large gains of some models with almost every arm, scalars included, which are those
    of their pair. The mean gains are not beyond chance, but several searches of single
    models are.
"""

from experiments.headroom.config import PRESETS as PRESETS
from experiments.headroom.config import Config as Config
from experiments.headroom.main import main as main

__all__ = ["PRESETS", "Config", "main"]
