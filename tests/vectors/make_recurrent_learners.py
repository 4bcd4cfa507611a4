"""Writes recurrent_learners.json: ``python -m tests.vectors.make_recurrent_learners``.

Inputs and answers of recurrent learners, for implementations in any language. Answer k
is that to query k after the first k examples. The numbers are those of NumPy loops in
float64, with every digit.
"""

import json
from pathlib import Path

import numpy as np

from tests.regression import oracles_recurrent as oracles

PATH = Path(__file__).with_name("recurrent_learners.json")
POINTS, DIM = 9, 3
SCHEDULE = [0.3, 0.25, 0.2, 0.18, 0.15, 0.12, 0.1, 0.08]
CASES = {
    "linear_attention": ("gated_linear_attention", {"step_size": 0.1, "gate": 1.0}),
    "gated_linear_attention": (
        "gated_linear_attention",
        {"step_size": 0.2, "gate": 0.8},
    ),
    "delta_rule": ("delta_rule", {"step_size": 0.15, "gate": 1.0}),
    "delta_rule_with_a_schedule": ("delta_rule", {"step_size": SCHEDULE, "gate": 1.0}),
    "gated_delta_rule": ("delta_rule", {"step_size": 0.2, "gate": 0.9}),
    "gate_of_zero": ("delta_rule", {"step_size": 0.2, "gate": 0.0}),
    "ridge": ("mesa", {"penalty": 0.5, "forgetting": 1.0}),
    "mesa": ("mesa", {"penalty": 0.25, "forgetting": 0.85}),
}


def vectors() -> dict:
    """Inputs, and for each learner its rule, its settings and its answers."""
    rng = np.random.default_rng(20)
    X, Q = rng.standard_normal((2, POINTS, DIM)).round(3)
    y = rng.standard_normal(POINTS).round(3)
    learners = {}
    for name, (rule, given) in CASES.items():
        answers = getattr(oracles, rule)(X, y, Q, **given).tolist()
        learners[name] = {"rule": rule, "settings": given, "answers": answers}
    points = {"X": X.tolist(), "y": y.tolist(), "X_query": Q.tolist()}
    return {"dtype": "float64", **points, "learners": learners}


if __name__ == "__main__":
    PATH.write_text(json.dumps(vectors(), indent=1) + "\n")
