"""In-context curves of language models: accuracy against demonstrations.

Command
    python -m experiments.shots [--preset tiny|gptj|llama2] [--resume RUN]
        [any field of Config, e.g. --tasks sst2 --task-folder FOLDER --rate 0]

What it does
    Answers the questions of each task behind 0, 1, 2, 4, ... demonstrations, for
    several draws and orders of them, with the model as it is and with one module of one
    layer clipped (Yao et al., section 2.2 and Figure 2: what do shots change?).
    Intervals take in the choice of demonstrations and that of the questions. Answers
    are recorded in records.jsonl, case by case; --resume answers the other cases.

Time
    tiny    the project's own small model, offline: see README.md.
    gptj, llama2    SST-2 with the layers and rates of the published search; not run.

Expect (tiny)
    nonce       rises with the demonstrations outside its intervals: only they tell what
                its label words stand for. This is what the checks ask.
    sentiment, topic    label words that mean what they say: little is left to learn.
"""

from experiments.shots.config import PRESETS as PRESETS
from experiments.shots.config import Config as Config
from experiments.shots.main import main as main

__all__ = ["PRESETS", "Config", "main"]
