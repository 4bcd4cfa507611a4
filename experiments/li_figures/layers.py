"""Searches optimiser, step size and initial scale for Figures 24 to 26."""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from experiments._frame.fields import check_at_least
from experiments.pattern_layers import Layers
from icltheory.patterns import neuron_parts, scores, train

_DATA, _START, _PROMPTS, _TRAINING = range(4)


@dataclasses.dataclass(frozen=True)
class LayerGrid:
    """Grid of trainings of three layers, evaluated at every snapshot.

    Attributes:
        layers: Data and training; its first seed is trained.
        scales: Standard deviations of neurons and read-out at the start; the first one
            has label parts of the norm .01 of the figures.
        adam: Step sizes of Adam.
        descent: Step sizes of gradient descent.
        prompts: Prompts on which attention and error are measured.
    """

    layers: Layers = Layers(steps=600, batch_size=32, record_every=30, seeds=(0,))
    scales: tuple[float, ...] = (0.007, 0.03)
    adam: tuple[float, ...] = (3e-4, 1e-3)
    descent: tuple[float, ...] = (0.3, 0.6, 1.0)
    prompts: int = 256

    def __post_init__(self):
        check_at_least(self, 1, "prompts")
        if self.layers.num_layers != 3:
            raise ValueError(
                "layers.num_layers: expected 3, as in the figures, got "
                f"{self.layers.num_layers}"
            )
        for name in ("scales", "adam", "descent"):
            values = getattr(self, name)
            if not values or not all(value > 0 for value in values):
                raise ValueError(
                    f"{name}: expected at least one value, each above 0, got {values}"
                )


class LayerRun(NamedTuple):
    """Results of one training of three layers.

    Attributes:
        rule: ``"Adam"`` or ``"descent"``.
        step_size: Its step size.
        scale: Standard deviation at the start.
        steps: Steps of the snapshots.
        norm: Mean norm of the label parts, ``(snapshots, layers)``.
        angle: Their mean angle to q or -q, whichever is nearer, over pi.
        attention: Mass on contexts of the query's pattern, ``(snapshots, layers)``.
        hinge: Hinge error in domain, ``(snapshots,)``.
    """

    rule: str
    step_size: float
    scale: float
    steps: list[int]
    norm: np.ndarray
    angle: np.ndarray
    attention: np.ndarray
    hinge: np.ndarray


def search(grid: LayerGrid, track: Any = iter) -> list[LayerRun]:
    """Trains at every setting, with one compiled program per Adam step size."""
    cases = [("Adam", (size,)) for size in grid.adam] + [("descent", grid.descent)]
    return [run for rule, sizes in track(cases) for run in runs(grid, rule, sizes)]


def runs(grid: LayerGrid, rule: str, sizes: tuple[float, ...]) -> list[LayerRun]:
    """Trains with one update rule at several step sizes in one program."""
    pairs = [(size, scale) for size in sizes for scale in grid.scales]
    adam = optax.adam(sizes[0], b2=grid.layers.decay) if rule == "Adam" else None
    one = _one(grid, adam)
    found = jax.jit(lambda pairs: jax.lax.map(one, pairs))(
        jnp.asarray(pairs, jnp.float32)
    )
    layers = grid.layers
    steps = [*range(0, layers.steps + 1, layers.record_every)]
    rows = zip(*map(np.asarray, found), strict=True)
    return [
        LayerRun(rule, *pair, steps, *row)
        for pair, row in zip(pairs, rows, strict=True)
    ]


def _one(grid: LayerGrid, adam):
    """Returns a function from step size and initial scale to all measurements."""
    layers = grid.layers
    model = layers.model()
    keys = [layers.keys(purpose)[0] for purpose in range(4)]
    task = layers.task(keys[_DATA])
    prompt = task.sample(keys[_PROMPTS], layers.num_examples, grid.prompts)

    def labels(params):
        def of_layer(W_O, W_V, W_U):
            sign = params["w"] @ W_U
            parts = neuron_parts({"W_O": W_O, "W_V": W_V, "a": sign}, task)
            angle = jnp.minimum(parts.label_angle, jnp.pi - parts.label_angle)
            return jnp.mean(parts.label_norm), jnp.mean(angle) / jnp.pi

        return jax.vmap(of_layer)(params["W_O"], params["W_V"], params["W_U"])

    def look(params):
        seen = scores(model, params, prompt)
        return *labels(params), seen.attention_mass, seen.hinge

    def run(pair):
        step_size, scale = pair
        start = model.init(
            task,
            key=keys[_START],
            attention_scale=layers.attention_scale,
            attention_noise=layers.attention_noise,
            neuron_scale=scale,
        )
        given = {"rule": adam} if adam is not None else {"step_size": step_size}
        path = train(
            model,
            task,
            start,
            layers.steps,
            key=keys[_TRAINING],
            batch_size=layers.batch_size,
            num_examples=layers.num_examples,
            record_every=layers.record_every,
            **given,
        )
        return jax.lax.map(look, path.params)

    return run
