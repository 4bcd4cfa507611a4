"""Three layers on pattern tasks: attention, labels, errors (Figures 21 to 26).

Command
    python -m experiments.pattern_layers [--preset cpu|gpu|paper] [--resume RUN]
        [any field of Config, e.g. --layers.num-layers 2 --ring 1 2]

What it does
    Trains transformers of three layers with residuals by Adam, a model a seed, on 18 of
    the 30 tasks and again on a ring of 6. Follows the attention to contexts of the
    query's pattern in every layer, and norm and angle to +-q of the label part of each
    row of W_O W_V; then tests on shifted patterns of coefficient sum S_1, by 0-1 and
    hinge error, with the same draws at every S_1. In float32. The authors' layers and
    step sizes are not known; these are chosen, with batches of 64 prompts.

Time
    cpu     110 s on two cores that other programs shared, 30 of it compiling.
    gpu, paper  more seeds, draws and steps; not measured yet.

Expect (cpu; seeds 0 to 2, 900 steps; standard errors over 96 draws in brackets)
    attention   .442 .447 .454 -> .898 .993 .916 (18 tasks), .441 .447 .452 -> .843 .981
                .873 (ring). Past .7 within 50 steps. In one seed of three the last
                layer, no longer needed, loses some of it again (.84, ring .76).
    labels      norms grow by 1.4, 1.6 and 1.3, angles fall by .10, .14 and .08 pi: most
                in the second layer, but not in one layer only, as Figures 24 to 26.
    0-1 error   18 tasks: .0087 (.0029) at S_1 = 1.1, .0204 (.0054) at .5, .0247 (.0059)
                at 0, .0109 (.0031) at -1. Ring: .0215 (.0043), .0401 (.0056), .0462
                (.0059), .0336 (.0049). Paired, .5 minus 1.1: .0117 (.0035), and .0187
                (.0028). In domain .0004 and .0059.
    The order is Figure 12's. The level is set by few draws of the patterns: on three
    quarters of them 18 tasks give no error above .01 at S_1 = .5, so that a mean over
    three draws can be near 0. It is |S_1| that counts, not S_1: unlike one layer
    (Theorem 2), three layers err least at both ends, where shifted patterns share most.
"""

from experiments.pattern_layers.config import PRESETS as PRESETS
from experiments.pattern_layers.config import Config as Config
from experiments.pattern_layers.main import main as main

__all__ = ["PRESETS", "Config", "main"]
