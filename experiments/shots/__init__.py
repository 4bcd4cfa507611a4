"""In-context learning curves of language models: accuracy against demonstrations.

Command
    python -m experiments.shots [--preset tiny|gptj|llama2] [--resume RUN]
        [any field of Config, e.g. --task mine.yaml --rate 0]

What it does
    Answers the questions of each task behind 0, 1, 2, 4, ... demonstrations, for
    several draws and orders of them, with the model as it is and with one module of one
    layer clipped (Yao et al., section 2.2 and Figure 2: what do shots change?).
    Intervals take in the choice of demonstrations and that of the questions. Answers
    are recorded in records.jsonl, case by case; --resume answers the other cases.

Time
    tiny    the project's own small model, offline: half a minute on two cores.
    gptj, llama2    SST-2 with the layers and rates of the published search; not run.

Expect (tiny; numbers in docs/experiments/shots.md and its stored result.json)
    nonce       accuracy at chance behind 0 and 1, and near 1 from 2 on, when both
                classes have been shown: only demonstrations tell what its label words
                stand for.
    nonce_topic accuracy at chance behind 0, and near 1 from 4 on, when all four classes
                have been shown. The checks ask whether these two rise.
    sentiment, topic    accuracy near 1 behind any number: label words that mean what
                they say, and little is left to learn.
    The MLP of the last layer clipped by 0.75 changes the accuracy with nonce labels
    behind 0 and 1 demonstrations, where labels are mostly a guess: up with two classes,
    down with four. From 2 on, and for the other tasks, no change is significant.
"""

from experiments.shots.config import PRESETS as PRESETS
from experiments.shots.config import Config as Config
from experiments.shots.main import main as main

__all__ = ["PRESETS", "Config", "main"]
