"""Trains the model of a recipe inside a run folder."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from experiments._frame.run import Run
from experiments._trained.fit import Timing, fit, mean_metrics
from experiments._trained.recipes import Recipe
from icltheory.attention import LinearAttentionStack
from icltheory.layered import LayeredModel, LayeredStack
from icltheory.models import LayeredGPT2


@dataclasses.dataclass(frozen=True)
class TrainedModels:
    """Trained models of one recipe: module, parameters, snapshots and metrics.

    Attributes:
        name: Its name in the run folder.
        recipe: How it was made.
        module: The Flax module; ``module.apply({"params": params}, X, y, X_query)``.
        params: Final parameters with a leading axis of seeds.
        snapshots: Parameters at the recipe's snapshots, with that axis too.
        records: Metrics: step, loss and gradient norm (lists over the seeds).
        timing: Wall time of the training.
    """

    name: str
    recipe: Recipe
    module: Any
    params: Any
    snapshots: dict[int, Any]
    records: list[dict[str, Any]]
    timing: Timing

    def of_seed(self, index: int, step: int | None = None) -> Any:
        """Returns one seed's parameters by its index, at the end or at a snapshot."""
        params = self.params if step is None else self.snapshots[step]
        return _at(params, index)

    def stack(self, index: int = 0, step: int | None = None) -> LinearAttentionStack:
        """Returns the weights of a linear stack as a ``LinearAttentionStack``."""
        if self.recipe.model != "linear":
            raise ValueError(f"model: expected linear, got {self.recipe.model}")
        return LinearAttentionStack(**self.of_seed(index, step))

    def layered(self) -> tuple[LayeredModel, float]:
        """Returns the layered model, and the sign that makes its output a prediction.

        A linear stack's output is the query token; its answer is the sign times the
        last entry. Its parameters are :meth:`stack`, GPT-2's are :meth:`of_seed`.
        """
        if self.recipe.model == "gpt2":
            return LayeredGPT2(self.module), 1.0
        scale = 1.0 / (self.recipe.num_points - 1)
        return LayeredStack.of(self.stack(), scale=scale), -1.0


def train(
    recipe: Recipe,
    run: Run,
    *,
    name: str | None = None,
    earlier: Sequence[dict[str, Any]] = (),
) -> TrainedModels:
    """Trains to the last step, or resumes from the newest checkpoint.

    Products run in full float32. Checkpoints are in ``checkpoints/NAME`` of the run
    folder; they hold the snapshots as well, so that a resumed run has all of them. A
    finished training is read back in a second.

    Args:
        recipe: What to train.
        run: The run folder; ``metrics.jsonl`` gets a line a chunk.
        name: Name of the model within the run; the recipe's kind if not given.
        earlier: Records that are to stay in ``metrics.jsonl``: those of the models that
            this run trained before.

    Returns:
        Parameters, snapshots, metrics and timing.

    Raises:
        ValueError: if the folder holds a checkpoint of another recipe.
    """
    jax.config.update("jax_default_matmul_precision", "highest")
    name = name or recipe.model

    def record(done, chunk):
        return {"model": name, "step": done, **mean_metrics(chunk.metrics)}

    fitted = fit(
        recipe.step(),
        recipe.start(),
        run,
        record,
        folder=run.folder / "checkpoints" / name,
        num_steps=recipe.steps,
        chunk_steps=recipe.chunk_steps,
        checkpoint_every=recipe.checkpoint_every,
        config=dataclasses.asdict(recipe),
        snapshots=recipe.snapshots,
        earlier=earlier,
        label=f"training {name}",
    )

    def with_seeds(params):
        if len(recipe.seeds) > 1:
            return params
        return jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], params)

    return TrainedModels(
        name,
        recipe,
        recipe.module(),
        with_seeds(fitted.state.params),
        {step: with_seeds(params) for step, params in fitted.snapshots.items()},
        fitted.records,
        fitted.timing,
    )


@jax.jit
def _at(params, index):
    return jax.tree.map(lambda leaf: leaf[index], params)
