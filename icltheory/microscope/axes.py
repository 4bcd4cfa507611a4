"""Which algorithm along an axis: layers, training steps, distribution shifts."""

from collections.abc import Callable, Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from icltheory._checks import wrong
from icltheory._core import Record
from icltheory.batching import in_batches
from icltheory.layered import LayeredModel, all_hidden
from icltheory.layered.protocol import check_layered
from icltheory.microscope import models
from icltheory.microscope.analysis import identify
from icltheory.microscope.intervals import SkewedEstimate
from icltheory.microscope.records import Analysis, Identification, shares_of


class Along(Record):
    """Identifications along an axis, one per place."""

    axis: str = eqx.field(static=True)
    places: tuple[Any, ...] = eqx.field(static=True)
    found: tuple[Identification, ...]

    def __getitem__(self, place: Any) -> Identification:
        if place not in self.places:
            raise KeyError(f"{self.axis}: expected one of {self.places}, got {place!r}")
        return self.found[self.places.index(place)]

    def analyses(self) -> list[tuple[Any, Analysis]]:
        """Every place with the analysis at the largest number of examples."""
        lasts = (one.last for one in self.found)
        return list(zip(self.places, lasts, strict=True))

    def rows(self) -> list[dict[str, Any]]:
        """The rows of all identifications, with their places."""
        pairs = zip(self.places, self.found, strict=True)
        return [{self.axis: place} | row for place, one in pairs for row in one.rows()]

    @property
    def summary(self) -> str:
        """One line per place: the closest candidate, and what the mixture leaves."""
        lines = []
        for place, analysis in self.analyses():
            best, rest = analysis.best, 100 * analysis.unexplained.mean
            share = f"{100 * best.share.mean:.3g} % of the variance"
            lines.append(
                f"{self.axis} {place}: {best}, {share} ({rest:.3g} % by the mixture)"
            )
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.summary

    def shares(self) -> dict[str, SkewedEstimate]:
        """Share by candidate, as estimates along the axis."""
        return shares_of([analysis for _, analysis in self.analyses()])

    def figure(self, names: Any = None, ax: Any = None) -> Any:
        """Draws the shares of some candidates, all unless given, along the axis."""
        from icltheory.plotting import figures

        shares = self.shares()
        shown = {name: shares[name] for name in names or shares}
        numbers = all(isinstance(place, int | float) for place in self.places)
        places = self.places if numbers else range(len(self.places))
        label = "distance / variance of answers"
        look = {"xlabel": self.axis, "ylabel": label, "x": places, "ax": ax}
        axes = figures.error_curves(shown, **look)
        if not numbers:
            axes.set_xticks(range(len(self.places)), self.places, rotation=30)
        return axes


class Probe(Record):
    r"""A linear read-out of one depth, fitted to the labels of queries.

    .. math:: \min_{u, b}\ \sum_s (\langle u, h_s\rangle + b - y_s)^2
        + \rho\, |u|^2 .

    Source: Alain and Bengio (2017).
    """

    weights: Any
    bias: Any

    @classmethod
    def fitted(cls, states: Any, labels: Any, penalty: float = 1e-6) -> "Probe":
        """Fits states ``(S, n)`` to labels ``(S,)``; rho = penalty |H|_F^2 / n."""
        H, y = np.asarray(states, float), np.asarray(labels, float)
        centre, mean = H.mean(axis=0), y.mean()
        H = H - centre[None]
        gram = H.T @ H
        amount = penalty * np.trace(gram) / len(gram)
        amount = max(amount, np.finfo(float).tiny) * np.eye(len(gram))
        u = np.linalg.lstsq(gram + amount, H.T @ (y - mean), rcond=None)[0]
        return cls(u, mean - centre @ u)

    def __call__(self, state: Any) -> Any:
        """Reads a state ``(n,)``."""
        weights, bias = (jnp.asarray(v, state.dtype) for v in (self.weights, self.bias))
        return jnp.sum(weights * state) + bias


def along_models(
    named: Mapping[Any, Any], source: Any, *, axis: str = "step", **options: Any
) -> Along:
    """Identifies several models on the same prompts, such as snapshots of a training.

    Args:
        named: The models by place, such as ``{step: WithParams(function, params)}``;
            those that share a function are compiled once.
        options: As those of :func:`~icltheory.microscope.identify`.

    Example:
        >>> from icltheory.regression import LinearPopulation, Ridge
        >>> source, key = LinearPopulation.isotropic(2, 0.25), jax.random.key(0)
        >>> ridges = {n: Ridge(n) for n in (1.0, 2.0)}
        >>> found = along_models(ridges, source, axis="penalty",
        ...     candidates={"ridge 1": Ridge(1.0), "ridge 2": Ridge(2.0)},
        ...     num_examples=3, key=key, num_prompts=16)
        >>> [found[n].best.name for n in (1.0, 2.0)]
        ['ridge 1', 'ridge 2']
    """
    if not isinstance(named, Mapping) or not named:
        raise wrong("named", "models by place, at least one", named)
    found = [identify(model, source, **options) for model in named.values()]
    return Along(axis, tuple(named), tuple(found))


def along_shifts(model: Any, sources: Mapping[str, Any], **options: Any) -> Along:
    """Identifies a model on several sources, such as ``regression.garg_shifts(d)``.

    Example:
        >>> from icltheory.regression import Ridge, shifts
        >>> settings = {name: shifts.Shift(name, 3) for name in ("standard", "skewed")}
        >>> found = along_shifts(Ridge(1.0), settings, candidates={"own": Ridge(1.0)},
        ...     num_examples=3, key=jax.random.key(0), num_prompts=16)
        >>> found.places
        ('standard', 'skewed')
    """
    if not isinstance(sources, Mapping) or not sources:
        raise wrong("sources", "sources by name, at least one", sources)
    found = [identify(model, source, **options) for source in sources.values()]
    return Along("source", tuple(sources), tuple(found))


def along_layers(
    model: LayeredModel,
    params: Any,
    source: Any,
    inputs: Callable[..., Any],
    read: Callable[[Any], Any],
    **options: Any,
) -> Along:
    r"""Identifies what a layered model's own read-out says after every layer.

    .. math:: f_l(X, y, x) = \mathrm{read}\bigl(\mathrm{read\_out}(h_l)\bigr),
        \qquad l = 0, \dots, L .

    Args:
        inputs: Makes the model's inputs of one prompt (X, y, x).
        read: Reads the answer, a scalar, from the model's outputs.
        options: As those of :func:`~icltheory.microscope.identify`.

    Example:
        >>> from icltheory import constructions as made
        >>> from icltheory.layered import LayeredStack
        >>> from icltheory.regression import LinearPopulation, Steps
        >>> source, key = LinearPopulation.isotropic(2, 0.25), jax.random.key(0)
        >>> stack = made.gradient_descent([0.3, 0.3], 2)
        >>> found = along_layers(
        ...     LayeredStack.of(stack, scale=1 / 4), stack, source,
        ...     lambda X, y, x: tuple(made.join_tokens(X, y[:, None], x)),
        ...     lambda h: made.read_prediction(h, 2)[0],
        ...     candidates={f"{t} steps": Steps([0.3] * t) for t in range(3)},
        ...     num_examples=4, key=key, num_prompts=16)
        >>> [found[layer].best.name for layer in range(3)]
        ['0 steps', '1 steps', '2 steps']

    Source: nostalgebraist (2020), the logit lens; Akyurek et al. (2023), Section 4.
    """
    check_layered(model)

    def at(depth):
        def function(params, X, y, x):
            states = all_hidden(model, params, inputs(X, y, x))
            return read(model.read_out(params, states[depth]))

        return models.WithParams(function, params)

    depths = {depth: at(depth) for depth in range(model.num_layers + 1)}
    return along_models(depths, source, axis="layer", **options)


def probe(
    model: LayeredModel,
    params: Any,
    prompt: Any,
    inputs: Callable[..., Any],
    state: Callable[[Any], Any],
    *,
    batch_size: int = 256,
) -> dict[int, models.WithParams]:
    r"""Models that read every depth by a linear probe, a second view of the layers.

    .. math:: f_l(X, y, x) = \langle u_l, h_l\rangle + b_l ,

    fitted to the labels of the queries of a batch of prompts. Pass the result to
    :func:`along_models` with other prompts.

    Args:
        prompt: A batch of prompts with one query each, for the fit.
        inputs: Makes the model's inputs of one prompt (X, y, x).
        state: Reads the vector ``(n,)`` of the query from a hidden state.

    Example:
        >>> from icltheory import constructions as made
        >>> from icltheory.layered import LayeredStack
        >>> from icltheory.regression import LinearPopulation
        >>> prompt = LinearPopulation.isotropic(2).sample(jax.random.key(0), 4, 64)
        >>> stack = made.gradient_descent([0.3, 0.3], 2)
        >>> probes = probe(LayeredStack.of(stack, scale=1 / 4), stack, prompt,
        ...     lambda X, y, x: tuple(made.join_tokens(X, y[:, None], x)),
        ...     lambda hidden: hidden.h_query)
        >>> list(probes)
        [0, 1, 2]

    Source: Alain and Bengio (2017); Akyurek et al. (2023), Section 4.3.
    """
    check_layered(model)

    @jax.jit
    @jax.vmap
    def states(X, y, x):
        return [state(h) for h in all_hidden(model, params, inputs(X, y, x))]

    given = prompt.X, prompt.y, prompt.x_query
    known = in_batches(states, batch_size, *given)
    return {
        depth: models.WithParams(
            _probed(model, inputs, state, depth),
            (params, Probe.fitted(H, prompt.y_query)),
        )
        for depth, H in enumerate(known)
    }


def _probed(model, inputs, state, depth):
    def function(given, X, y, x):
        params, fitted = given
        return fitted(state(all_hidden(model, params, inputs(X, y, x))[depth]))

    return function
