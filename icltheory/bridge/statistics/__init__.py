"""Statistics of accuracies: whether a difference could be chance, and how wide.

Predictions are class numbers; -1 means that there was none because a score was NaN. It
counts as wrong and is counted apart. NumPy and SciPy only; randomness comes from an
integer seed.
"""

from icltheory.bridge.statistics.comparison import Comparison, compare
from icltheory.bridge.statistics.intervals import (
    Interval,
    accuracy_interval,
    bootstrap_interval,
)
from icltheory.bridge.statistics.mcnemar import (
    exact_mcnemar,
    least_discordant,
    smallest_p_value,
)
from icltheory.bridge.statistics.replicates import (
    Replicates,
    adjust_holm,
    holm,
    summarise_replicates,
)
from icltheory.bridge.statistics.scores import (
    MajorityLine,
    Scores,
    majority_line,
    mark_correct,
    score_predictions,
)
from icltheory.bridge.statistics.selection import Selection, corrected_selection

__all__ = [
    "Comparison",
    "Interval",
    "MajorityLine",
    "Replicates",
    "Scores",
    "Selection",
    "accuracy_interval",
    "adjust_holm",
    "bootstrap_interval",
    "compare",
    "corrected_selection",
    "exact_mcnemar",
    "holm",
    "least_discordant",
    "majority_line",
    "mark_correct",
    "score_predictions",
    "smallest_p_value",
    "summarise_replicates",
]
