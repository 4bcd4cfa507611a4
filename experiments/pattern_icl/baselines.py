"""Classical classifiers on the same contexts (Figures 27 and 28), by scikit-learn."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import sklearn
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.svm import SVC
from threadpoolctl import threadpool_limits

from experiments._patterns import TrainedEnsemble, over_seeds
from experiments._patterns.gpt2 import TrainedGpt
from experiments.pattern_icl.config import Config
from experiments.pattern_icl.gpt2 import margins_by_length
from experiments.pattern_icl.lengths import prefix
from icltheory.patterns import PatternPrompt, scores
from icltheory.statistics import Estimate

ONE_LAYER, GPT, LOGISTIC = "ICL, one layer", "ICL, GPT-2", "logistic regression"
NEAREST_3, ORIGIN = "3-NN", "logistic, no intercept"
_KEYS = 13
# C of logistic regression and SVMs, and the width of the Gaussian kernel, are the
# library's defaults, since the slides do not state them.
CLASSIFIERS: dict[str, Callable[[], Any]] = {
    LOGISTIC: lambda: LogisticRegression(C=1.0),
    ORIGIN: lambda: LogisticRegression(C=1.0, fit_intercept=False),
    "SVM, Gaussian": lambda: SVC(C=1.0, kernel="rbf", gamma="scale"),
    "SVM, linear": lambda: SVC(C=1.0, kernel="linear"),
    "1-NN": lambda: KNeighborsClassifier(1, algorithm="brute"),
    NEAREST_3: lambda: KNeighborsClassifier(3, algorithm="brute"),
}


@dataclasses.dataclass(frozen=True)
class MethodComparison:
    """Wrong predictions of every method on the same prompts.

    Attributes:
        fraction: alpha'.
        wrong: By method, (lengths, prompts).
        missed: Prompts without a context of the query's pattern, (lengths, prompts).
    """

    fraction: float
    wrong: dict[str, np.ndarray]
    missed: np.ndarray

    def error(self, name: str) -> np.ndarray:
        """Error of a method at every length."""
        return self.wrong[name].mean(axis=1)

    def difference(self, name: str, other: str) -> tuple[float, float]:
        """Mean paired difference of two errors, with its standard error."""
        each = self.wrong[name].astype(float) - self.wrong[other]
        mean, error = Estimate.of(each.mean(axis=0))
        return float(mean), float(error)


def compare(
    config: Config, trained: TrainedEnsemble, gpt: TrainedGpt
) -> tuple[MethodComparison, ...]:
    """Evaluates all methods on unseen tasks, with the first n contexts per length."""
    return tuple(
        _compare(config, trained, gpt, i) for i in range(len(config.baseline_fractions))
    )


def _compare(config, trained, gpt, index) -> MethodComparison:
    fraction, lengths = config.baseline_fractions[index], config.baseline_lengths
    share = -(-config.baseline_prompts // len(config.figures.seeds))

    def one(task, params, key):
        own = jax.random.fold_in(key, index)
        unseen = task.held_out().with_(relevant_fraction=fraction)
        prompt = unseen.sample(own, lengths[-1], share)
        shorter = [prefix(prompt, length) for length in lengths]
        margins = [scores(trained.model, params, p).margins for p in shorter]
        missed = jnp.stack([p.missed for p in shorter])
        return prompt, jnp.stack(margins), missed

    keys = trained.ensemble.keys(_KEYS)
    prompts, margins, missed = over_seeds(one, trained, keys)
    wrong = {ONE_LAYER: _joined(~(np.asarray(margins) > 0))}
    wrong[GPT] = _gpt_wrong(config, gpt, prompts)
    quick = {"assume_finite": True, "skip_parameter_validation": True}
    # Such small fits do not benefit from threads.
    with sklearn.config_context(**quick), threadpool_limits(1):
        for name, make in CLASSIFIERS.items():
            wrong[name] = _classifier_wrong(make, prompts, lengths)
    return MethodComparison(fraction, wrong, _joined(np.asarray(missed)))


def _joined(by_seed: np.ndarray) -> np.ndarray:
    """Reshapes (seeds, lengths, prompts) to (lengths, all prompts)."""
    return np.concatenate(by_seed, axis=1)


def _gpt_wrong(config: Config, gpt: TrainedGpt, prompts: PatternPrompt) -> np.ndarray:
    """Wrong predictions of GPT-2's first seed on the first model's prompts.

    (lengths, prompts) of that model.
    """
    prompt, params = jax.tree.map(lambda leaf: leaf[0], (prompts, gpt.params))
    margins = jax.jit(margins_by_length, static_argnums=0)(gpt.module, params, prompt)
    return np.asarray(margins)[:, list(config.baseline_lengths)].T <= 0


def _classifier_wrong(make, prompts: PatternPrompt, lengths) -> np.ndarray:
    X, y, query, z = (
        np.concatenate(np.asarray(part))
        for part in (prompts.X, prompts.y, prompts.x_query, prompts.z)
    )
    answers = [
        [classify(make, X[i, :n], y[i, :n], query[i]) for i in range(len(z))]
        for n in lengths
    ]
    return np.array(answers) != z[None]


def classify(make: Callable[[], Any], X, y, query) -> float:
    """Fits a classifier to the contexts and predicts the query's label."""
    if np.all(y == y[0]):
        return float(y[0])
    return float(make().fit(X, y).predict(query[None])[0])
