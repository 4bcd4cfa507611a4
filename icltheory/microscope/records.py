"""Records of an identification: candidates, analyses, summary, table and figure."""

from collections.abc import Sequence
from typing import Any

import equinox as eqx

from icltheory._core import Record
from icltheory.microscope.intervals import SkewedEstimate, stacked
from icltheory.regression.predictors import LinearPredictor
from icltheory.statistics import Estimate, Interval

# A linear candidate that leaves more than this share explains a model badly.
_BADLY = 0.1


class Candidate(Record):
    """The best member of a family, compared with the model.

    Args:
        distance: E (f - g)^2, with its standard error over prompts.
        share: The distance over the variance of the model's answers.
        farther: Distance minus that of the closest candidate, paired over prompts.
        query_weights: E |df/dx - dg/dx|^2 / E |df/dx|^2.
        weight: Weight in the best mixture.
    """

    name: str = eqx.field(static=True)
    parameters: dict[str, Any]
    predictor: Any
    distance: Estimate
    share: Estimate
    farther: Estimate
    query_weights: Estimate
    weight: float
    weight_interval: Interval

    def __str__(self) -> str:
        values = (f"{name} {value:.4g}" for name, value in self.parameters.items())
        return f"{self.name} ({', '.join(values)})" if self.parameters else self.name


class Analysis(Record):
    """A model at one number of examples.

    Args:
        candidates: From the closest to the farthest.
        closest: Names of those that are as close as the closest, the simplest first.
        unexplained: Share of the variance of the answers that the best mixture leaves.
        linearity_in_labels: Share of E (f - f_0)^2 that the labels' weights explain.
        linearity_in_query: The same of the response to the query.
        rounding: A distance below it is one of rounding errors.
        num_prompts: Prompts on which distances were judged.
    """

    num_examples: int = eqx.field(static=True)
    candidates: tuple[Candidate, ...]
    closest: tuple[str, ...] = eqx.field(static=True)
    unexplained: Estimate
    linearity_in_labels: Estimate
    linearity_in_query: Estimate
    variance: float
    rounding: float
    num_prompts: int = eqx.field(static=True)
    level: float = eqx.field(static=True)

    def __getitem__(self, name: str) -> Candidate:
        found = {candidate.name: candidate for candidate in self.candidates}
        if name not in found:
            raise KeyError(f"{name}: expected one of {', '.join(found)}")
        return found[name]

    @property
    def best(self) -> Candidate:
        """The simplest of the closest candidates."""
        return self[self.closest[0]]

    @property
    def exact(self) -> bool:
        """Whether the answers are those of a candidate, up to rounding."""
        return float(self.best.distance.mean) <= self.rounding

    def rows(self) -> list[dict[str, Any]]:
        """One dictionary per candidate, from the closest to the farthest."""
        found = []
        for c in self.candidates:
            row = {"num_examples": self.num_examples, "candidate": c.name}
            row |= {"parameters": c.parameters, "distance": float(c.distance.mean)}
            row |= {"interval": tuple(map(float, c.distance.interval(self.level)))}
            row |= {"share": float(c.share.mean), "weight": c.weight}
            row |= {"weight_interval": tuple(c.weight_interval)}
            found.append(row | {"query_weights": float(c.query_weights.mean)})
        return found

    @property
    def summary(self) -> str:
        """What the model is closest to, in a few sentences."""
        if self.variance == 0:
            return f"After {self.num_examples} examples its answers are all the same."
        text = f"After {self.num_examples} examples {self._nearest()}"
        others = [str(self[name]) for name in self.closest[1:]]
        if others:
            text += f" As close: {', '.join(others)}."
        if not self.exact:
            text += f" The best mixture leaves {_percent(self.unexplained.mean)}."
        text += (
            f" Linearity: {self.linearity_in_labels.mean:.3f} in the labels, "
            f"{self.linearity_in_query.mean:.3f} in the query."
        )
        return text + self._without_linear()

    def _nearest(self) -> str:
        best = self.best
        if self.exact:
            return (
                f"the model's answers are those of {best}, up to rounding (mean "
                f"squared difference {best.distance.mean:.1e})."
            )
        low, high = best.share.interval(self.level)
        return (
            f"the model is closest to {best}: their distance is "
            f"{_percent(best.share.mean)} of the variance of its answers "
            f"({100 * self.level:g} % interval {_percent(max(low, 0.0))} to "
            f"{_percent(high)})."
        )

    def _without_linear(self) -> str:
        linear = [
            c for c in self.candidates if isinstance(c.predictor, LinearPredictor)
        ]
        if not linear or linear[0].share.interval(self.level).low <= _BADLY:
            return ""
        return (
            " No candidate that is linear in the query explains it: the closest, "
            f"{linear[0]}, leaves {_percent(linear[0].share.mean)}."
        )


class Identification(Record):
    """A model at one or more numbers of examples; ``print`` shows the summaries."""

    analyses: tuple[Analysis, ...]

    def at(self, num_examples: int) -> Analysis:
        """The analysis at a number of examples."""
        found = {a.num_examples: a for a in self.analyses}
        if num_examples not in found:
            raise KeyError(f"num_examples: expected one of {list(found)}")
        return found[num_examples]

    @property
    def last(self) -> Analysis:
        """The analysis at the largest number of examples."""
        return max(self.analyses, key=lambda a: a.num_examples)

    @property
    def best(self) -> Candidate:
        """The simplest of the closest candidates, at the most examples."""
        return self.last.best

    @property
    def summary(self) -> str:
        """The summaries, one paragraph per number of examples."""
        return "\n".join(analysis.summary for analysis in self.analyses)

    def __str__(self) -> str:
        return self.summary

    def rows(self) -> list[dict[str, Any]]:
        """The rows of all analyses."""
        return [row for analysis in self.analyses for row in analysis.rows()]

    def table(self) -> str:
        """The rows as text: shares with their intervals, and weights."""
        lines = [f"{'N':>3} {'share':>9} {'interval':>19} {'weight':>6}  candidate"]
        for analysis in self.analyses:
            for c in analysis.candidates:
                low, high = c.share.interval(analysis.level)
                lines.append(
                    f"{analysis.num_examples:>3} {c.share.mean:9.2e} "
                    f"{low:9.2e} {high:9.2e} {c.weight:6.3f}  {c}"
                )
        return "\n".join(lines)

    def shares(self) -> dict[str, SkewedEstimate]:
        """Share by candidate, as estimates over the numbers of examples."""
        return shares_of(self.analyses)

    def figure(self, ax: Any = None) -> Any:
        """Draws the shares over the numbers of examples, or as one line each."""
        from icltheory.plotting import figures, panels, style

        if len(self.analyses) > 1:
            places = [analysis.num_examples for analysis in self.analyses]
            label = "distance / variance of answers"
            return figures.error_curves(self.shares(), x=places, ax=ax, ylabel=label)
        axes = panels.new_axes(ax)
        shown = self.last.candidates[::-1]
        colours = style.method_colours([c.name for c in shown])
        for place, c in enumerate(shown):
            mean, ends = c.share.mean, c.share.interval(self.last.level)
            look = {"color": colours[c.name], "marker": "o", "linestyle": ""}
            reach = [[mean - ends.low], [ends.high - mean]]
            axes.errorbar(mean, place, xerr=reach, **look)
        axes.set_yticks(range(len(shown)), [str(c) for c in shown])
        axes.set_xlabel("distance / variance of answers")
        axes.set_xscale("log")
        return axes


def shares_of(analyses: Sequence[Analysis]) -> dict[str, SkewedEstimate]:
    """Share by candidate that all analyses have, as estimates over the analyses."""
    names = [candidate.name for candidate in analyses[-1].candidates]
    for one in analyses:  # those of a source may include what is optimal for it
        names = [name for name in names if any(c.name == name for c in one.candidates)]
    return {name: stacked([one[name].share for one in analyses]) for name in names}


def _percent(share: float) -> str:
    return f"{100 * float(share):.3g} %"
