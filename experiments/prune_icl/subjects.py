"""The models that are pruned, and their evaluation prompts."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments._trained import Recipe, TrainedModels
from experiments.prune_icl.config import Config
from icltheory import training
from icltheory.layered import Batched, LayeredModel
from icltheory.regression import shifts

CONDITIONS = ("standard", "label noise", "skewed inputs")


@dataclasses.dataclass(frozen=True)
class PrunedSubject:
    """A trained model prepared for pruning sweeps.

    Attributes:
        name: ``"GPT-2"`` or ``"linear stack"``.
        recipe: How it was trained.
        model: The layered model of a batch of prompts.
        params: Its parameters, one for each seed.
        modules: Groups that are pruned, the paper's.
        matrices: Single matrices that are pruned.
        ranks: Ranks that are kept, the full one first.
        shots: Numbers of demonstrations; the last one is the main one.
    """

    name: str
    recipe: Recipe
    model: LayeredModel
    params: tuple[Any, ...]
    modules: tuple[str, ...]
    matrices: tuple[str, ...]
    ranks: tuple[int, ...]
    shots: tuple[int, ...]

    @property
    def rates(self) -> tuple[float, ...]:
        """Clipping rates: one minus rank over full rank."""
        return tuple(1 - r / self.ranks[0] for r in self.ranks)

    @property
    def layers(self) -> range:
        """Layer indices, starting from 0."""
        return range(self.model.num_layers)


def subject(trained: TrainedModels, config: Config) -> PrunedSubject:
    """Prepares a trained model for pruning: its matrices, ranks and prompts."""
    recipe, seeds = trained.recipe, range(len(trained.recipe.seeds))
    d = recipe.dim
    model, _ = trained.layered()
    matrices = tuple(spec.name for spec in model.matrices(0))
    shots = sorted({0, max(d // 2, 1), d, 2 * d})
    if recipe.model == "gpt2":
        modules = ("attn", "mlp", "all") if recipe.mlp else ("attn",)
        params = tuple(trained.of_seed(s) for s in seeds)
        return PrunedSubject(
            "GPT-2",
            recipe,
            model,
            params,
            modules,
            matrices,
            config.gpt2_ranks,
            tuple(shots),
        )
    shots = tuple(sorted({*shots, recipe.num_points - 1}))
    params = tuple(trained.stack(s) for s in seeds)
    return PrunedSubject(
        "linear stack",
        recipe,
        Batched(model),
        params,
        ("attn",),
        matrices,
        config.linear_ranks,
        shots,
    )


@dataclasses.dataclass(frozen=True)
class Questions:
    """Prompts of every condition in one batch, in the model's input format.

    Attributes:
        inputs: Inputs of the layered model.
        targets: What it should answer, (prompts, shots), without label noise.
        parts: Slice of the prompts that belong to (condition, "validation" or "test").
    """

    inputs: Any
    targets: jax.Array
    parts: dict[tuple[str, str], slice]


def questions(
    subject: PrunedSubject, config: Config, conditions: tuple[str, ...] = CONDITIONS
) -> Questions:
    """Draws the prompts, the same for every seed, layer, module and rate.

    The demonstrations of a noisy prompt carry noise, the answer asked for does not: the
    error is then the model's own, and differences between models are the same.
    """
    recipe = subject.recipe
    count = config.validation_prompts + config.test_prompts
    X, y, w = zip(*(_draw(recipe, config, c, count) for c in conditions), strict=True)
    X, y, w = (jnp.concatenate(part) for part in (X, y, w))
    parts = {}
    for place, condition in enumerate(conditions):
        start, middle = place * count, place * count + config.validation_prompts
        parts[condition, "validation"] = slice(start, middle)
        parts[condition, "test"] = slice(middle, start + count)
    shots = np.asarray(subject.shots)
    if recipe.model == "gpt2":
        targets = jnp.einsum("bkd,bd->bk", X[:, shots], w)
        return Questions((X, y), targets, parts)
    query = X[:, -1]
    target = jnp.einsum("bd,bd->b", query, w)
    targets = jnp.broadcast_to(target[:, None], (len(target), len(shots)))
    return Questions(_zero_padded(X[:, :-1], y[:, :-1], query, shots), targets, parts)


def _draw(recipe: Recipe, config: Config, condition: str, count: int):
    """Draws points, labels and weights of one condition."""
    key = training.stream_key(recipe.seeds[0], "evaluation")
    key = jax.random.fold_in(key, CONDITIONS.index(condition))
    if condition == "skewed inputs":
        shift = shifts.Shift("skewed", recipe.dim, jnp.float32)
        prompt = shift(key, recipe.num_points, count)
        return prompt.X, prompt.y, prompt.w
    noise = config.label_noise if condition == "label noise" else recipe.noise_var
    prompt = recipe.task(noise).sample(key, recipe.num_points - 1, count)
    return *prompt.points(), prompt.w


def _zero_padded(X, y, query, shots: np.ndarray):
    """Sets demonstrations beyond a prompt's shots to zero tokens, which have no effect.

    Prompts with the same points and different shots follow each other.
    """
    H = jnp.concatenate([X, y[:, :, None]], axis=2)
    shown = jnp.asarray(np.arange(X.shape[1])[None] < shots[:, None], H.dtype)
    H = (H[:, None] * shown[None, :, :, None]).reshape(-1, *H.shape[1:])
    h_query = jnp.pad(query, ((0, 0), (0, 1)))
    return H, jnp.repeat(h_query, len(shots), axis=0)
