"""Trains a small language model that learns in context, for offline use of the bridge.

Command
    python -m experiments.small_lm [--preset cpu|gpu] [--resume RUN]
        [any field of Config, e.g. --steps 6000 --language.noise 0.1]

What it does
    A LLaMA of 4 layers and width 64 (188,160 parameters, 757 kB) learns documents of
    demonstrations ``w w w : LABEL``. The words betray a sentiment, a season and a
    topic; one of the three decides the label. In a quarter of the documents label words
    mean what they say, in the others they are nonce words drawn for each document,
    so that nothing can be known without demonstrations. Labels count in full in the
    loss, all other words a tenth. The curriculum goes from few words, one or two a
    sentence, to the whole language, and from short documents to long ones; how much of
    that is needed was not measured.
    The run folder holds the model as a Hugging Face checkpoint, four tasks for
    ``load_task``, and accuracy over the shots beside Bayes' rule for this language. All
    its sentences are held out (the numbers of their words add up to a multiple of five,
    which training never sees), and so are all pairs of nonce label words.
    ``checkpoint/`` and ``tasks/`` beside this file are those of the preset cpu, seed 0.

Time
    cpu     4,000 steps: 413 s on four shared cores, of which 386 s training.
    gpu     6 layers of width 96, 20,000 steps; not measured yet.

Expect (cpu; accuracy, standard error over 32 draws of demonstrations and label words)
    shots                  0       1       2       4       8      16
    nonce sentiment     .535    .502    .675    .896    .992    .987
                      (.052)  (.014)  (.045)  (.036)  (.003)  (.004)
    nonce season        .502    .522    .737    .917    .987    .985
                      (.047)  (.015)  (.041)  (.031)  (.004)  (.004)
    nonce topic         .248    .255    .432    .703    .880    .956
                      (.033)  (.015)  (.025)  (.029)  (.023)  (.013)
    ... by Bayes' rule  .250    .489    .664    .924    .986    .987
    Where label words mean what they say there is nothing left to learn: sentiment .979
    (.004) without shots and .988 (.003) with 16, topic .981 and .983. Bayes' rule is
    told the label words and the model is not, so that one shot shows it one of them.
    Sentences with as many stray words as telling ones (focus 0.5, noise 0.05, 3 to 6
    words, 6,000 steps) end at .861, .888 and .369 with 16 shots.

Draws are functions of the seed and the step. Other platforms and numbers of threads
round otherwise and end at other weights.
"""

from experiments.small_lm.config import PRESETS as PRESETS
from experiments.small_lm.config import Config as Config
from experiments.small_lm.main import main as main

__all__ = ["PRESETS", "Config", "main"]
