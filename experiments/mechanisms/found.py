"""The record of all measurements of a run."""

from typing import NamedTuple

import numpy as np

from experiments.mechanisms import circuit, features, kernels, language, regression


class MechanismFindings(NamedTuple):
    """All measurements of a run.

    Attributes:
        balanced: Equally likely features, by their number.
        finite: Steps and losses in finite contexts, by their length.
        imbalanced: One dominant feature.
        forms: Largest difference of the three forms of descent, by kernel.
        errors: Errors by depth of every kernel, and of kriging, by process.
        circuit: The circuit that is built by hand.
        language: The small language model.
        regression: The GPT-2 on regression.
    """

    balanced: dict[int, features.Balanced]
    finite: dict[int, tuple[np.ndarray, np.ndarray]]
    imbalanced: features.Imbalanced
    forms: dict[str, float]
    errors: dict[str, tuple[dict[str, kernels.Depths], kernels.Depths]]
    circuit: circuit.Circuit
    language: language.LanguageCurves
    regression: regression.Lookup
