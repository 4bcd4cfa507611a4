"""Removes <beta*, x> from a trained model's residual stream and measures the error.

The scalar <beta*, x_query> is a linear function of the query, so that it is at once an
input and the answer of the prior mean. Its removal from everything that follows shows
only that the model needs the query. Two routes tell these uses apart: the blocks no
longer read the scalar, or the read-out no longer receives it past the blocks.
"""

import dataclasses
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from experiments._trained import TrainedModels
from experiments.ltb_gpt2.config import Config, ModelSetting
from experiments.ltb_gpt2.directions import (
    Direction,
    carrying,
    random_direction,
)
from experiments.ltb_gpt2.measure import References, Score, prior_task
from icltheory import training
from icltheory.layered import all_hidden, forward_edited
from icltheory.models import LayeredGPT2
from icltheory.regression.prompts import Prompt

PRIOR, INPUT, RANDOM = "<beta*, x>", "<v, x>", "random direction"
EVERYWHERE, BLOCKS, READ_OUT = "everywhere", "blocks", "read-out"


class Removed(NamedTuple):
    """One removal: its scalar, its route and its depth.

    Attributes:
        scalar: What was removed: ``PRIOR``, ``INPUT`` or ``RANDOM``.
        route: What no longer receives it: all that follows (``EVERYWHERE``), the blocks
            alone (``BLOCKS``: it is added again before the read-out), or the read-out
            alone (``READ_OUT``: it is subtracted there and the blocks still read it).
        depth: Depth of the removal; 0 is the embedding.
    """

    scalar: str
    route: str
    depth: int

    @property
    def name(self) -> str:
        """Key of the removal in ``result.json``."""
        kind = {PRIOR: "prior", INPUT: "input", RANDOM: "random"}[self.scalar]
        return f"{kind}_{self.route.replace('-', '_')}_{self.depth}"


@dataclasses.dataclass(frozen=True)
class Removals:
    """Errors of one cell's models before and after removals.

    Attributes:
        before: Error of the models as they are, on the same prompts.
        after: Error after each removal.
        explained: R^2 of the least-squares predictor of the scalar, by depth and seed.
    """

    before: Score
    after: dict[Removed, Score]
    explained: tuple[tuple[float, ...], ...]


class Floors(NamedTuple):
    """Exact least risks of predictors that lack <beta*, x_query>, for H = Psi = I.

    Attributes:
        unseen: Of all that do not see it.
        passed: Of all that add it to an answer made without it.
    """

    unseen: float
    passed: float


def floors(config: Config, mean: float, column: References) -> Floors:
    r"""Computes the least risks without the scalar.

    .. math:: (\beta^{*\top} \beta^* + 1) + \tfrac{d - 1}{d} (R - \sigma^2) + \sigma^2,
        \qquad 1 + \tfrac{d - 1}{d} (R - \sigma^2) + \sigma^2

    with the Bayes risk R. Without <u, x>, u = beta* / |beta*|, the term <u, w> <u, x>
    of the answer has mean 0 given all else, and its variance is
    :math:`|\beta^*|^2 + 1`; of the posterior variance, d - 1 of d equal parts remain.
    """
    d, noise = config.recipe.dim, config.recipe.noise_var
    rest = (d - 1) / d * (column.bayes - noise) + noise
    return Floors(unseen=d * mean**2 + 1 + rest, passed=1 + rest)


def removals(config: Config, trained: TrainedModels, cell: ModelSetting) -> Removals:
    """Removes the scalar and the controls at every depth of every seed's model.

    Directions are fitted on prompts of their own. In the models of mean zero the same
    linear function of the query is removed.
    """
    fit, fresh = (_prompt(config, cell.mean, number) for number in (1, 2))
    model = LayeredGPT2(trained.module, last_only=True)
    errors, states = partial(_errors, model), partial(_states, model)
    found, explained = [], []
    for index in range(len(config.recipe.seeds)):
        params = trained.of_seed(index)
        clean, fitted = (
            np.asarray(states(params, prompt), np.float64) for prompt in (fresh, fit)
        )
        plan = _plan(config, fitted, fit.x_query, index)
        unchanged = np.zeros(clean.shape, np.float32)
        scores: dict[Any, np.ndarray] = {None: errors(params, fresh, unchanged)}
        for removed, directions in plan.items():
            runs = [
                errors(params, fresh, _edit(removed, clean, one)) for one in directions
            ]
            scores[removed] = np.mean(runs, axis=0)
        found.append(scores)
        scalar = _scalars(config, fit.x_query)[PRIOR]
        explained.append([carrying(h, scalar)[1] for h in fitted])
    scored = {
        kind: Score.of(np.stack([one[kind] for one in found])) for kind in found[0]
    }
    before = scored.pop(None)
    return Removals(before, scored, tuple(map(tuple, np.transpose(explained).tolist())))


def _plan(
    config: Config, fitted: np.ndarray, x: Any, index: int
) -> dict[Removed, Sequence[Direction]]:
    """Returns the directions to remove by removal, over which errors are averaged."""
    last, plan = len(fitted) - 1, {}
    rng = np.random.default_rng(index)
    for depth, h in enumerate(fitted):
        for name, scalar in _scalars(config, x).items():
            direction, _ = carrying(h, scalar)
            # At the last depth, the read-out's input, all routes are the same.
            routes = (EVERYWHERE,) if depth == last else (EVERYWHERE, BLOCKS, READ_OUT)
            for route in routes:
                plan[Removed(name, route, depth)] = (direction,)
        plan[Removed(RANDOM, EVERYWHERE, depth)] = [
            random_direction(rng, h) for _ in range(config.random_directions)
        ]
    return plan


def _scalars(config: Config, x: Any) -> dict[str, np.ndarray]:
    """Returns <1, x>, of which <beta*, x> is a multiple, and an orthogonal function."""
    x = np.asarray(x, np.float64)
    v = np.zeros(config.recipe.dim)
    v[:2] = 1, -1
    return {PRIOR: x.sum(axis=1), INPUT: x @ v}


def _edit(removed: Removed, clean: np.ndarray, direction: Direction) -> np.ndarray:
    """Returns the change of the query's stream at each depth, (L + 1, B, width)."""
    part = direction.part(clean[removed.depth])
    added = np.zeros(clean.shape, np.float32)
    if removed.route != READ_OUT:
        added[removed.depth] -= part
    if removed.route == BLOCKS:
        added[-1] += part
    if removed.route == READ_OUT:
        added[-1] -= part
    return added


def _prompt(config: Config, mean: float, number: int) -> Prompt:
    key = training.stream_key(config.recipe.seeds[0], "evaluation")
    key = jax.random.fold_in(key, number)
    count = config.removal_prompts
    return prior_task(config, mean).sample(key, config.num_examples, count)


def _inputs(prompt: Prompt) -> tuple[jax.Array, jax.Array]:
    X = jnp.concatenate([prompt.X, prompt.x_query[:, None]], axis=1)
    return X, jnp.pad(prompt.y, ((0, 0), (0, 1)))


@partial(jax.jit, static_argnames="model")
def _errors(model: LayeredGPT2, params, prompt: Prompt, added):
    """Squared errors after changes of the query's stream at each depth."""

    def at(depth):
        def edit(h):
            tokens = h.tokens.at[:, -1].add(added[depth])
            return dataclasses.replace(h, tokens=tokens)

        return edit

    edits = {depth: at(depth) for depth in range(model.num_layers + 1)}
    answers = forward_edited(model, params, _inputs(prompt), edits)[:, -1]
    return jnp.square(answers - prompt.y_query)


@partial(jax.jit, static_argnames="model")
def _states(model: LayeredGPT2, params, prompt: Prompt):
    """Returns the query's stream at each depth, (L + 1, B, width)."""
    found = all_hidden(model, params, _inputs(prompt))
    return jnp.stack([h.tokens[:, -1] for h in found])
