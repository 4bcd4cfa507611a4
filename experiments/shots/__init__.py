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
    tiny    the project's own small model, offline: a minute on four cores.
    gptj, llama2    SST-2 with the layers and rates of the published search; not run.

Expect (tiny)
    nonce       0.36 (0.03), 0.50, 0.98, 0.98, 0.99 and 0.985 (0.007) behind 0, 1, 2, 4,
                8 and 16: only demonstrations tell what its label words stand for.
    nonce_topic 0.35 (0.03), 0.26, 0.49, 0.95, 0.97 and 0.963 (0.012), of four classes.
                The checks ask whether these two rise.
    sentiment, topic    0.97 to 0.98 and 0.98 to 0.99: label words that mean what they
                say, and little is left to learn.
    The MLP of the last layer clipped by 0.75 changes nothing but the guess of nonce
    labels without demonstrations (0.36 to 0.50).
"""

from experiments.shots.config import PRESETS as PRESETS
from experiments.shots.config import Config as Config
from experiments.shots.main import main as main

__all__ = ["PRESETS", "Config", "main"]
