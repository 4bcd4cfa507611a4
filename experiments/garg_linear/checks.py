"""Checks of a run by family of functions, and claims of Garg et al."""

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from experiments._frame.report import Check, Claim
from experiments.garg_linear.baselines import (
    AVERAGING,
    LASSO,
    LEAST_SQUARES,
    NEAREST,
    NETWORK,
    SIGNS_TREE,
    TREE,
)
from icltheory.statistics import Estimate

if TYPE_CHECKING:
    from experiments.garg_linear.config import Config

OPTIMUM = "one-layer optimum"
STEPS, LOWER_BOUND = "best gradient steps", "lower bound for linear layers"
PAPER_ERRORS = {20: 0.02, 40: 0.0006}  # Garg et al. 2022, Section 3, d = 20
# In the claims, a smaller difference of normalised errors counts as none.
_CLOSE = 0.05


@dataclasses.dataclass(frozen=True)
class Measured:
    """Normalised squared errors of a run, by method.

    Attributes:
        config: What was run.
        transformer: Of the trained models, (seeds, prompts, points).
        zero: Of predicting 0, (prompts, points).
        baselines: Of each method, (prompts, points); of the first prompts where it
            answers no more.
        exact: Exact risks, (points,).
    """

    config: "Config"
    transformer: np.ndarray
    zero: np.ndarray
    baselines: Mapping[str, np.ndarray]
    exact: Mapping[str, np.ndarray]

    def mean(self, k: int) -> float:
        """Mean error of the transformer after k examples."""
        return float(self.transformer[..., k].mean())

    def named(self, name: str) -> np.ndarray:
        """Errors of a method, whose name may end with parameters in brackets."""
        [errors] = (v for key, v in self.baselines.items() if _bare(key) == name)
        return errors

    def difference(self, name: str, k: int) -> Estimate:
        """Error of the transformer minus that of a baseline, on the same prompts."""
        other = self.named(name)[:, k]
        own = self.transformer[:, : len(other), k].mean(axis=0)
        return Estimate.of(np.asarray(own - other))


def linear(measured: Measured) -> list[Check]:
    """Checks for linear functions: baselines, optimum, exact and published risks."""
    at = 2 * measured.config.dim
    found = [_below_optimum(measured, at), *_exact_risks(measured)]
    if _smaller_than_published(measured.config):
        return found  # other comparisons are claims
    near = Check(
        f"Transformer against least squares at k = {at}",
        measured.mean(at),
        float(measured.named(LEAST_SQUARES)[:, at].mean()),
        "<=",
        0.05,
    )
    if measured.config.dim == 20:
        found += [
            Check(
                f"Transformer against the published error at k = {k}",
                measured.mean(k),
                published,
                "<=",
            )
            for k, published in PAPER_ERRORS.items()
        ]
    return [near, *found]


def linear_claims(measured: Measured) -> list[Claim]:
    """Claims of Garg et al. 2022, Section 3, for models smaller than the published."""
    if not _smaller_than_published(measured.config):
        return []
    return [
        Claim(
            claim=f"The error is that of Garg et al. at k = {k}",
            measured=f"{measured.mean(k):.4f}",
            held=measured.mean(k) <= published,
            expected=f"at most {published:g}",
        )
        for k, published in PAPER_ERRORS.items()
    ]


def _smaller_than_published(config: "Config") -> bool:
    return config.dim == 20 and config.num_layers < 12


def sparse(measured: Measured) -> list[Check]:
    """Checks for sparse functions: one layer's optimum, exact risks, normaliser."""
    return [
        _below_optimum(measured, 2 * measured.config.dim),
        *_exact_risks(measured),
        _normalizer(measured),
    ]


def relu_network(measured: Measured) -> list[Check]:
    """Checks for ReLU networks: final error below the baselines, and the normaliser."""
    last = measured.config.num_points - 1
    return [
        *(_below(measured, name, last) for name in (LEAST_SQUARES, NEAREST)),
        _normalizer(measured),
    ]


def decision_tree(measured: Measured) -> list[Check]:
    """Checks for decision trees: final error below the baselines, and normaliser."""
    last = measured.config.num_points - 1
    return [
        *(_below(measured, name, last) for name in (NEAREST, TREE)),
        _normalizer(measured),
    ]


def sparse_claims(measured: Measured) -> list[Claim]:
    """Claims of Garg et al. 2022, Figure 5: nearly as good as the Lasso."""
    d = measured.config.dim
    return [
        _at_most(measured, LEAST_SQUARES, (d // 2,), 0.0),
        _at_most(measured, LASSO, (d // 2, d), _CLOSE),
    ]


def relu_claims(measured: Measured) -> list[Claim]:
    """Claims of Garg et al. 2022, Figure 5: as good as a trained network."""
    last = measured.config.num_points - 1
    return [_at_most(measured, NETWORK, (last // 2, last), _CLOSE)]


def tree_claims(measured: Measured) -> list[Claim]:
    """Claims of Garg et al. 2022, Figure 5: far better than greedy trees."""
    last = measured.config.num_points - 1
    return [
        _at_most(measured, name, (last // 2, last), 0.0) for name in (TREE, SIGNS_TREE)
    ]


def _at_most(measured: Measured, name: str, ks: tuple[int, ...], slack: float) -> Claim:
    """Claims that the transformer's error exceeds a baseline's by at most ``slack``."""
    parts, held = [], True
    for k in ks:
        found = measured.difference(name, k)
        low, high = (float(end) for end in found.interval(0.9))
        held &= high <= slack
        parts.append(f"k = {k}: {float(found.mean):+.3f} [{low:+.3f}, {high:+.3f}]")
    beside = f"at most {slack:g} above" if slack else "below"
    return Claim(
        claim=f"The transformer's error is {beside} that of: {name}",
        measured="difference on the same prompts, 90 % interval: " + "; ".join(parts),
        held=held,
        expected=f"intervals below {slack:g}",
    )


def _below(measured: Measured, name: str, k: int) -> Check:
    """Checks that the transformer's error is below a baseline's on the same prompts."""
    other = measured.named(name)[:, k]
    own = float(measured.transformer[:, : len(other), k].mean())
    title = f"Transformer below {name} at k = {k}, same prompts"
    return Check(title, own, float(other.mean()), "<=")


def _below_optimum(measured: Measured, k: int) -> Check:
    return Check(
        f"Transformer below the one-layer optimum at k = {k}",
        measured.mean(k),
        float(measured.exact[OPTIMUM][k]),
        "<=",
    )


def _exact_risks(measured: Measured) -> list[Check]:
    """Checks the errors of two baselines against their exact risks."""
    k = max(measured.config.dim // 2, 1)
    return [
        Check(
            f"{name}, Monte Carlo against exact at k = {k}",
            float(measured.named(name)[:, k].mean()),
            float(measured.exact[name][k]),
            "within",
            _five_errors(measured.named(name)[:, k]),
        )
        for name in (LEAST_SQUARES, AVERAGING)
    ]


def _normalizer(measured: Measured) -> Check:
    """Checks that normalised labels have second moment 1."""
    sample = measured.zero.mean(axis=1)
    return Check(
        "error of predicting 0, Monte Carlo against exact",
        float(sample.mean()),
        1.0,
        "within",
        _five_errors(sample),
    )


def _five_errors(sample: np.ndarray) -> float:
    return 5 * float(Estimate.of(np.asarray(sample)).standard_error)


def _bare(name: str) -> str:
    return name.partition(" (")[0]
