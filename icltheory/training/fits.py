"""Trains a model on a source in one call, and keeps what came of it."""

import dataclasses
import json
import os
import shutil
from pathlib import Path
from typing import Any

import equinox as eqx
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from icltheory import models
from icltheory._checks import check_key, check_positive_int, wrong
from icltheory._typing import Array, PRNGKey, PyTree
from icltheory.batching import Progress
from icltheory.regression.predictors.base import Predictor
from icltheory.training.checkpoints import Checkpoints
from icltheory.training.loop import run
from icltheory.training.optimizers import OptimizerConfig, averaged, make_optimizer
from icltheory.training.steps import Curriculum, TrainState, init_state, make_step

_MODELS = {"GPT2": models.GPT2, "LinearStack": models.LinearStack}
_FILE = "fit.json"


class TrainedModel(Predictor):
    """A trained model as a predictor; all prefixes of a prompt take one pass.

    Args:
        module: The Flax module.
        params: Its parameters.
    """

    module: nn.Module = eqx.field(static=True)
    params: PyTree

    def answer(self, X: Array, y: Array, x_query: Array) -> Array:
        """What the module predicts for one query after all examples."""
        if not hasattr(self.module, "predict"):  # the last of all prefixes
            rows = jnp.concatenate([X, x_query[None]]), jnp.append(y, 0)
            return self.answers(*rows, rows[0])[-1]
        one = (X[None], y[None], x_query[None])
        found: Any = self.module.apply({"params": self.params}, *one, method="predict")
        return found[0].astype(y.dtype)

    def answers(self, X: Array, y: Array, X_query: Array) -> Array:
        """What the module predicts after every prefix."""
        inputs = (X[None], y[None]) + (() if X_query is X else (X_query[None],))
        found: Any = self.module.apply({"params": self.params}, *inputs)
        return found[0].astype(y.dtype)


@dataclasses.dataclass(frozen=True, eq=False)
class Fit:
    """A training run: the model as a predictor, and its curve.

    Args:
        model: The trained model, for every function that takes a predictor.
        losses: Training loss at each step, ``(steps,)``.
        config: What was trained and how, as JSON values.
    """

    model: TrainedModel
    losses: np.ndarray
    config: dict[str, Any]

    def predict(self, X: Any, y: Any, x_query: Any) -> Array:
        """Answers a query after all examples: X (N, d), y (N,), x_query (d,)."""
        return self.model.predict(X, y, x_query)

    def save(self, folder: str | os.PathLike) -> Path:
        """Writes a new folder, whole or not at all, which :func:`load_fit` reads."""
        path = Path(folder).absolute()
        if path.exists():
            raise ValueError(f"folder: expected one that does not exist, got {path}")
        aside = path.with_name(f".writing_{path.name}")
        shutil.rmtree(aside, ignore_errors=True)
        state = {"params": self.model.params, "losses": self.losses}
        about = {"model": _described(self.model.module), "config": self.config}
        try:
            Checkpoints(aside).save(len(self.losses), state)
            (aside / _FILE).write_text(json.dumps(about, indent=1) + "\n")
            aside.rename(path)
        finally:
            shutil.rmtree(aside, ignore_errors=True)
        return path

    def __repr__(self) -> str:
        last = self.losses[-max(len(self.losses) // 20, 1) :].mean()
        name = type(self.model.module).__name__
        return f"Fit({name}, {len(self.losses):,} steps, loss {last:.4g})"


def fit(
    model: nn.Module,
    source: Any,
    *,
    key: Any,
    steps: int = 2000,
    num_examples: int | None = None,
    batch_size: int = 64,
    optimizer: OptimizerConfig | None = None,
    curriculum: Curriculum | None = None,
    start: PyTree = None,
    progress: Progress | None = None,
) -> Any:
    r"""Trains a model to answer after every prefix of a source's prompts.

    .. math:: \min_\theta\; E\, \frac{1}{N + 1} \sum_{k=0}^{N}
        \big( f_\theta(x_1, y_1, \dots, x_k, y_k, x_{k+1}) - y_{k+1} \big)^2

    by fresh prompts at each step (the logistic loss where labels are signs). The
    defaults suit small models: the optimiser is Muon with a cosine schedule, and no
    curriculum. For checkpoints, resuming and many devices put together the same pieces:
    :func:`make_step`, :func:`run` and :class:`Checkpoints`.

    Args:
        model: A Flax module such as :func:`icltheory.models.transformer` makes.
        source: Where prompts come from, any with ``dim`` and ``sample``.
        key: Typed key of the start and the prompts; an array of keys, ``(S,)``, trains
            S models side by side and returns a list of :class:`Fit`.
        num_examples: Most examples N of a prompt; as many as the model has positions
            for unless given.
        start: Parameters to begin from, such as ``found.model.params``, for another
            ``steps`` of training; drawn if ``None``.
        progress: See :mod:`icltheory.batching`. An error that it raises ends the
            training without a model; who wants to stop early loops over :func:`run`.

    Example:
        >>> from icltheory import models, regression as reg
        >>> source = reg.LinearPopulation.isotropic(2)
        >>> model = models.transformer(2, 8, width=16, num_layers=1)
        >>> found = fit(model, source, key=jax.random.key(0), steps=20)
        >>> curve = reg.estimate_risk(
        ...     found.model, source, range(9), key=jax.random.key(1))
        >>> curve.mean.shape
        (9,)

    Source: Garg et al. 2022, equation (2) and Appendix A.
    """
    if not isinstance(model, nn.Module):
        raise wrong("model", "a Flax module", model)
    if not (hasattr(source, "sample") and hasattr(source, "dim")):
        raise wrong("source", "one with dim and sample", source)
    check_positive_int("steps", steps)
    several = jnp.ndim(key) == 1
    check_key("key", key[0] if several else key)
    num_points = 1 + _num_examples(model, source, num_examples)
    if not isinstance(optimizer, OptimizerConfig | None):
        raise wrong("optimizer", "an OptimizerConfig, such as of 'adam'", optimizer)
    config = optimizer or OptimizerConfig(
        "muon", 5e-3, 3e-3, "cosine", min(200, steps // 10), clip_norm=1.0
    )
    rule = make_optimizer(config, steps)
    step = make_step(
        model,
        source,
        rule,
        curriculum or Curriculum.none(source.dim, num_points),
        batch_size=batch_size,
        num_points=num_points,
    )
    seeds = np.asarray(jax.vmap(_seed)(key) if several else _seed(key))
    state = init_state(model, source, rule, seeds.tolist(), num_points=num_points)
    if start is not None:
        state = _started(state, start, jax.vmap(rule.init) if several else rule.init)
    chunk = max(1, min(250, steps // 20))
    losses = []
    if progress is not None:
        progress(0, steps, "")
    program = jax.vmap(step) if several else step
    for part in run(program, state, steps, chunk_steps=chunk):
        state = part.state
        losses.append(part.metrics["loss"])
        if progress is not None:
            done = sum(map(len, losses))
            progress(done, steps, f"training, loss {losses[-1][-1].mean():.4g}")
    curve, params = np.concatenate(losses).astype(np.float32), averaged(state)
    about = {"source": repr(source), "dim": source.dim, "num_examples": num_points - 1}
    about |= {"steps": steps, "batch_size": batch_size, "optimizer": repr(config)}
    if not several:
        return Fit(TrainedModel(model, params), curve, about | {"seed": int(seeds)})
    return [
        Fit(
            TrainedModel(model, jax.tree.map(lambda leaf, i=i: leaf[i], params)),
            curve[:, i],
            about | {"seed": int(seed)},
        )
        for i, seed in enumerate(seeds)
    ]


def load_fit(folder: str | os.PathLike, module: nn.Module | None = None) -> Fit:
    """Reads a :class:`Fit` that was saved.

    ``module`` is the model where it is not one of :mod:`icltheory.models`.
    """
    path = Path(folder) / _FILE
    if not path.is_file():
        raise FileNotFoundError(f"{path}: expected a folder that Fit.save wrote")
    about = json.loads(path.read_text())
    config, model = about["config"], about["model"]
    if module is None:
        if model["name"] not in _MODELS:
            raise ValueError(f"module: expected a {model['name']}, got None")
        fields = {
            name: getattr(jnp, value) if name.endswith("dtype") else value
            for name, value in model["fields"].items()
        }
        module = _MODELS[model["name"]](**fields)
    X = jax.ShapeDtypeStruct((1, config["num_examples"] + 1, config["dim"]), "float32")
    y = jax.ShapeDtypeStruct(X.shape[:2], "float32")
    shapes = jax.eval_shape(module.init, jax.random.key(0), X, y)["params"]
    curve = jax.ShapeDtypeStruct((config["steps"],), "float32")
    found = Checkpoints(Path(folder)).restore({"params": shapes, "losses": curve})
    losses = np.asarray(found.state["losses"])
    return Fit(TrainedModel(module, found.state["params"]), losses, config)


def _started(state: TrainState, params: PyTree, init: Any) -> TrainState:
    """The state with given parameters, copied, as the steps take the state's own."""
    if hasattr(params, "params"):
        raise wrong("start", "parameters, such as found.model.params", params)
    wanted, got = map(_shapes, (state.params, params))
    for name in {**wanted, **got}:
        if (a := wanted.get(name)) != (b := got.get(name)):
            said = f"parameters as the model's, with {name} {a}, got {b}"
            raise ValueError(f"start: expected {said}")
    own = jax.tree.map(lambda a, b: jnp.array(b, a.dtype), state.params, params)
    return TrainState(state.step, state.seed, own, init(own))


def _shapes(tree: PyTree) -> dict[str, tuple[int, ...]]:
    """Shapes of the leaves by their names."""
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {jax.tree_util.keystr(path): jnp.shape(leaf) for path, leaf in leaves}


def _described(module: nn.Module) -> dict[str, Any]:
    """Name and fields of a module; dtypes by their names."""
    names = {field.name for field in dataclasses.fields(module)} - {"parent", "name"}
    values = {name: getattr(module, name) for name in sorted(names)}
    fields = {
        name: np.dtype(value).name if name.endswith("dtype") else value
        for name, value in values.items()
    }
    return {"name": type(module).__name__, "fields": fields}


def _seed(key: PRNGKey) -> Array:
    return (jax.random.bits(key, dtype=jnp.uint32) >> 1).astype(jnp.int32)


def _num_examples(model: nn.Module, source: Any, given: int | None) -> int:
    """Most examples of a prompt, as given or as many as the model takes."""
    if given is not None:
        check_positive_int("num_examples", given)
        return given
    most = getattr(model, "num_examples", None)
    if most is None and hasattr(model, "num_positions"):
        per_pair = 2 if model.token_layout == "interleaved" else 1
        most = model.num_positions // per_pair - 1
    if most is None:
        name = type(model).__name__
        raise ValueError(f"num_examples: expected a number for a {name}, got None")
    return int(most)
