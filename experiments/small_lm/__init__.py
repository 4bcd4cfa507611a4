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
    The run folder holds the model, its weights rounded to bfloat16, as a Hugging Face
    checkpoint, four tasks for ``load_task``, and accuracy over the shots beside Bayes'
    rule for this language. All sentences of the evaluation are held out (the numbers of
    their words add up to a multiple of five, which training never sees), and so are all
    pairs of nonce label words.
    ``checkpoint/`` and ``tasks/`` beside this file are those of the preset cpu, seed 0.

Time
    cpu     4,000 steps: four to five minutes on two cores, nearly all of it training;
            several times as long where many programs share them.
    gpu     6 layers of width 96, 20,000 steps; not measured yet.

Expect (cpu; numbers in docs/experiments/small_lm.md)
    With nonce labels the accuracy rises from chance behind 0 and 1 shots to near Bayes'
    rule with 16: with two classes (sentiment, season) already with 8, with four (topic)
    more slowly. Where label words mean what they say there is nothing left to learn:
    the accuracy is near Bayes' rule without shots. Bayes' rule is told the label words
    and the model is not, so that one shot shows it one of them.
    In a run that is not stored, sentences with as many stray words as telling ones
    (focus 0.5, noise 0.05, 3 to 6 words, 6,000 steps) end at .861 (nonce sentiment),
    .888 (season) and .369 (topic) with 16 shots.

Draws are functions of the seed and the step. Other platforms and numbers of threads
round otherwise and end at other weights.
"""

from experiments.small_lm.config import PRESETS as PRESETS
from experiments.small_lm.config import Config as Config
from experiments.small_lm.main import main as main

__all__ = ["PRESETS", "Config", "main"]
