"""Chain of thought against plain in-context learning (Li et al., arXiv 2410.02167).

Command
    python -m experiments.cot [--preset cpu|gpu|paper]
        [any field of Config, e.g. --seeds 0 1 2 --rhos 0.55 0.75]

What it does
    Trains the attention model of equation (11) on error-free prompts, once for three
    steps and once for two, several seeds in one program. Figures 17 and 18: CoT error
    against prompt length for alpha', tau and rho, and the length that reaches an error
    of .1. Figure 19: CoT and plain ICL on the same prompts where Condition 1 fails for
    one input, for all and for none. Figure 20: attention on four classes of columns
    along training. Beside them attention that counts votes exactly, exact errors of
    votes, proved bounds and limits. Intervals are Student's t over seeds, each with
    four draws of test patterns.

Time
    cpu     six seeds: 80 s on two cores that other programs shared, a third of it
            compilation.
    gpu     16 seeds; not measured yet.
    paper   16 seeds, 1,000 iterations; not measured yet.

Expect (cpu)
    checks      all pass. Attention starts at .139, .260, .206, .396 (figure: .145, .26,
                .205, .385), is .73 on the same step and input at iteration 100, .951 at
                400; other steps are below .05 from iteration 30, the input leads from
                60. Loss .0011.
    l = 321     slides' matrices: CoT .0015 (s.e. .0005), ICL .489 (.004), limit .5; a
                popular wrong answer: CoT .0220 (.0005), ICL .993 (.001), limit 1.
    lengths     for an error of .1 fall as alpha'^-0.88, tau^-0.99 and rho^-2.46: as the
                bound on a vote has it (-1, -1, -2.7), not as the -2 of Theorem 5, which
                is sufficient in alpha' and tau, but not sharp.
    not shown   Figures 17 to 19 do not say the rows of their matrices. With one rival a
                state (p = .66 against .33) our error at alpha' = 1 is .18 at l = 20 and
                .011 at l = 100, theirs .061 and .001.
"""

from experiments.cot.config import PRESETS as PRESETS
from experiments.cot.config import Config as Config
from experiments.cot.main import main as main

__all__ = ["PRESETS", "Config", "main"]
