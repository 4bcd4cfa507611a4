"""Compares a record with the values of the independent simulation."""

import math
from typing import Any

from experiments.bound_vs_error.reference import (
    GENERIC,
    ROWS,
    replicates,
    rounding,
)
from icltheory.strict_json import number

ERRORS = ("error", "det_error")


def reference_values(record: dict[str, Any]) -> dict[str, float]:
    """Returns the reference values of a row, or an empty dictionary."""
    if record["generic"]:
        return GENERIC.get((record["num_demos"], record["shots"]), {})
    key = tuple(record[k] for k in ("dim", "num_demos", "shots", "num_layers"))
    return ROWS.get(key, {})


def z_scores(record: dict[str, Any]) -> dict[str, float]:
    """Distance of each measured number from its reference, in standard errors.

    The standard error is that of both: ours, and the reference's own where it is given;
    otherwise what the spread measured here makes of its number of replicates. Rounding
    of the reference is taken off the distance first. Infinite values agree with
    infinite ones only.
    """
    reference = reference_values(record)
    count = replicates(record["num_demos"], record["generic"])
    scores = {}
    for name, expected in reference.items():
        if name.endswith("_se"):
            continue
        ours = record[name]
        value = number(ours["value"])
        if not math.isfinite(value + expected):
            scores[name] = 0.0 if value == expected else math.inf
            continue
        if name in ERRORS:
            other = reference[f"{name}_se"]
        elif name == "risk":
            # The variance of a loss in [0, 2] with this mean, averaged over N fresh
            # demonstrations.
            sampling = value * (2 - value) / record["num_demos"]
            other = math.sqrt((ours["spread"] ** 2 + sampling) / count)
        else:
            spread = ours.get("single_spread", ours["spread"])
            other = spread / math.sqrt(count)
        distance = max(abs(value - expected) - rounding(name), 0.0)
        sign = math.copysign(1.0, value - expected)
        scores[name] = sign * distance / math.hypot(ours["se"], other)
    return scores
