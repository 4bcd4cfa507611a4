"""What experiments on pattern classification share: trained ensembles, shifted tests.

``train_ensemble(Ensemble(...))`` trains one-layer models, a seed each, in one program,
and returns them with their tasks. ``over_seeds`` maps a function over them;
``scores_on`` and ``scores_at_sums`` measure them in domain and out of domain.
:mod:`experiments._patterns.gpt2` trains GPT-2 on the same prompts.
"""

from experiments._patterns.ensemble import PatternEnsemble as PatternEnsemble
from experiments._patterns.ensemble import TrainedEnsemble as TrainedEnsemble
from experiments._patterns.ensemble import train_ensemble as train_ensemble
from experiments._patterns.scores import Means as Means
from experiments._patterns.scores import check_sums as check_sums
from experiments._patterns.scores import means_of as means_of
from experiments._patterns.scores import over_seeds as over_seeds
from experiments._patterns.scores import scores_at_sums as scores_at_sums
from experiments._patterns.scores import scores_on as scores_on
from experiments._patterns.scores import scores_on_all as scores_on_all
from experiments._patterns.scores import shifted_prompts as shifted_prompts

__all__ = [
    "PatternEnsemble",
    "Means",
    "TrainedEnsemble",
    "check_sums",
    "means_of",
    "over_seeds",
    "scores_at_sums",
    "scores_on",
    "scores_on_all",
    "shifted_prompts",
    "train_ensemble",
]
