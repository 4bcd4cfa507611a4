"""SVD clipping compared with magnitude pruning, at equal numbers of parameters."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from experiments._patterns import TrainedEnsemble
from experiments.pattern_pruning.basis import basis_of, in_basis
from experiments.pattern_pruning.config import Config
from experiments.pattern_pruning.prompts import PROMPTS, errors, prompts_of
from icltheory.layered import forward
from icltheory.pruning import kept_parameters, prune_rows, sweep

MODULES = ("W_O", "W_V", "W_Q", "W_K", "all")
SVD, ENTRIES, AXES, NEURONS = METHODS = (
    "singular values",
    "entries",
    "entries, in the patterns' basis",
    "neurons",
)


@dataclasses.dataclass(frozen=True)
class Kept:
    """Errors of one module and method against the number of parameters kept.

    Attributes:
        module: What is pruned.
        method: How.
        parameters: Numbers kept of the module, one for each rank.
        total: Numbers in the module.
        hinge: ``(seeds, ranks, 2)``, in domain and out of domain.
        error: 0-1 error, ``(seeds, ranks, 2)``.
    """

    module: str
    method: str
    parameters: np.ndarray
    total: int
    hinge: np.ndarray
    error: np.ndarray


@dataclasses.dataclass(frozen=True)
class Bridge:
    """Errors of all modules and methods, and the spectra after training.

    Attributes:
        curves: One for each module and method.
        hinge: Unpruned, ``(seeds, 2)``.
        error: Unpruned, ``(seeds, 2)``.
        spectra: Singular values of W_O W_V and W_K' W_Q, ``(seeds, D)``.
    """

    curves: tuple[Kept, ...]
    hinge: np.ndarray
    error: np.ndarray
    spectra: dict[str, np.ndarray]

    def of(self, module: str, method: str) -> Kept:
        """Returns the curve of one module and method."""
        (found,) = (c for c in self.curves if (c.module, c.method) == (module, method))
        return found


def compare(config: Config, trained: TrainedEnsemble) -> Bridge:
    """Prunes every module by every method, with all seeds in one program."""

    def ask(task, key):
        return prompts_of(config, task, key, 1, config.bridge_prompts)

    keys, params = trained.ensemble.keys(PROMPTS), trained.params
    asked = jax.jit(jax.vmap(ask))(trained.tasks, keys)
    turned = jax.vmap(lambda t, w, p: in_basis(w, p, basis_of(t)))
    along_axes = jax.jit(turned)(trained.tasks, params, asked)
    curves = []
    for module in MODULES:
        curves.append(_swept(config, trained, module, SVD, params, asked))
        curves.append(_swept(config, trained, module, ENTRIES, params, asked))
        curves.append(_swept(config, trained, module, AXES, *along_axes))
    curves.append(_neurons(config, trained, params, asked))
    hinge, error = _errors(trained.model, params, asked)
    W_O, W_V, W_K, W_Q = (params[name] for name in ("W_O", "W_V", "W_K", "W_Q"))
    products = {"W_O W_V": W_O @ W_V, "W_K' W_Q": jnp.swapaxes(W_K, 1, 2) @ W_Q}
    return Bridge(
        tuple(curves),
        hinge,
        error,
        {name: np.linalg.svd(np.asarray(W, float))[1] for name, W in products.items()},
    )


def shapes_of(params, module: str) -> list[tuple[int, ...]]:
    """Returns the shapes of the matrices of a module."""
    names = MODULES[:-1] if module == "all" else (module,)
    return [params[name].shape[1:] for name in names]


def _swept(config, trained, module, method, params, asked) -> Kept:
    shapes = shapes_of(params, module)
    total = sum(m * n for m, n in shapes)
    kept = [sum(kept_parameters(s, rank) for s in shapes) for rank in config.ranks]
    if method == SVD:
        rates = [1 - rank / min(shapes[0]) for rank in config.ranks]
    else:
        rates = [1 - count / total for count in kept]

    def one(params, prompt):
        return sweep(
            trained.model,
            0,
            module,
            rates,
            errors,
            params=params,
            inputs=prompt,
            score_args=(prompt.z,),
            method="svd" if method == SVD else "magnitude",
        )

    found = jax.vmap(one)(params, asked)
    return Kept(module, method, np.array(kept), total, *map(np.asarray, found))


def _neurons(config, trained, params, asked) -> Kept:
    """Prunes rows of W_O to the number of parameters of each rank."""
    m, n = shapes_of(params, "W_O")[0]
    rows = np.array([kept_parameters((m, n), rank) // n for rank in config.ranks])

    def one(params, prompt):
        hidden = trained.model.block(0, params, trained.model.embed(params, prompt))

        def at(count):
            left = jnp.any(prune_rows(params["W_O"], kept=count) != 0, axis=1)
            outputs = trained.model.read_out(params, jnp.where(left, hidden, 0))
            return errors(outputs, prompt.z)

        return jax.lax.map(at, jnp.asarray(rows))

    found = jax.jit(jax.vmap(one))(params, asked)
    return Kept("W_O", NEURONS, rows * n, m * n, *map(np.asarray, found))


def _errors(model, params, asked) -> tuple[np.ndarray, np.ndarray]:
    def one(params, prompt):
        return errors(forward(model, params, prompt), prompt.z)

    hinge, error = jax.jit(jax.vmap(one))(params, asked)
    return np.asarray(hinge), np.asarray(error)
