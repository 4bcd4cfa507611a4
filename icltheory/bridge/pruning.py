"""Prunes modules of a language model: in its layers, embeddings and output head."""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from icltheory._checks import checked, finite, wrong
from icltheory.bridge.decoder import Decoder
from icltheory.bridge.families import read_architecture
from icltheory.bridge.model import LanguageModel
from icltheory.bridge.sharding import gathered, spread_like
from icltheory.layered import MatrixSpec, get_matrix, replace_matrix
from icltheory.linalg import SVD
from icltheory.pruning import Intervention, LowRank, Method, module_matrices
from icltheory.pruning.interventions import read_interventions
from icltheory.pruning.methods import check_method, kept_table
from icltheory.pruning.modules import tied_to


def prune_model(
    model: LanguageModel,
    interventions: Intervention | str | Sequence[Intervention | str],
    *,
    method: Method = LowRank(),
    systems: Any = None,
) -> LanguageModel:
    r"""Prunes one or several modules, each at its own rate or to its own rank.

    .. math:: W \mapsto U_{:r} S_{:r} V_{:r}^\top , \qquad
              r = \lfloor \min(m, n) (1 - \xi) \rfloor .

    Decomposed in float32 and stored in the dtype it had; at rate 0 unchanged to the
    bit. No matrix may occur twice, so the order of the interventions plays no part.
    Outside of the layers are the table of the token ``"embeddings"`` and the
    ``"head"``. Where they are one tied matrix, ``"embeddings,head"`` prunes it and the
    model stays tied; pruning one of them unties the model, whose other end keeps the
    original weights, and its config says so.

    The pruned model shares every other weight with ``model``, which is left as it is.

    Args:
        interventions: What is pruned, as records or as text such as ``"26:mlp:0.9"``,
            ``"3:W_Q,W_K:rank=8"`` or ``"embeddings:0.5"``; several with spaces between.
        systems: Keeps singular systems: ``systems.of(W)`` is ``(U, s, Vt)``. A
            decomposition each if ``None``.

    Example:
        >>> import numpy as np
        >>> from icltheory.bridge import Architecture
        >>> arch = Architecture(family="gpt2", vocab_size=50, width=8, num_layers=2,
        ...     num_heads=2, num_kv_heads=2, head_dim=4, mlp_width=32, max_positions=16)
        >>> decoder = Decoder(arch)
        >>> model = LanguageModel(decoder, decoder.init(jax.random.key(0)))
        >>> pruned = prune_model(model, ["1:mlp:0.75", "0:W_Q,W_K:rank=2"])
        >>> W = pruned.params["layers"][1]["mlp"]["W_in"]["weight"]
        >>> W.shape, int(np.linalg.matrix_rank(W))
        ((32, 8), 2)

    Source: Yao et al. (2024), Algorithm 1 (Clip); Sharma et al. (2023), compositions.
    """
    check_method(method)
    model, read = prepared(model, interventions)
    params = model.params
    for one in read:
        specs = one.specs(model)
        kept_table(method, params, specs, [one.strength])
        for spec in specs:
            old = get_matrix(params, spec)
            W, place = gathered(old, 0), (one.layer, spec.name)
            new = cutter_of(W, method, systems, place)(one.strength)
            if new is not W:
                params = replace_matrix(params, spec, spread_like(new, old))
    return model.replace(params=params)


def prepared(
    model: LanguageModel, interventions: Intervention | str | Sequence[Any]
) -> tuple[LanguageModel, tuple[Intervention, ...]]:
    """Returns the interventions and the model for them, untied if they require it."""
    if isinstance(interventions, str):
        interventions = interventions.split()
    elif isinstance(interventions, Intervention):
        interventions = [interventions]
    for one in interventions:
        (read,) = read_interventions(model, [one])
        if tied_to(model, read.layer, read.module):
            model = untied(model)
    return model, read_interventions(model, interventions)


def untied(model: LanguageModel) -> LanguageModel:
    """Returns the model with a separate head that copies the embeddings."""
    arch = dataclasses.replace(model.arch, tied=False)
    config = model.config and {**model.config, "tie_word_embeddings": False}
    if config and read_architecture(config, model.source or "config") != arch:
        wanted = "a config whose head can be untied"
        raise ValueError(f"model: expected {wanted}, got {arch.family}")
    params = model.params
    head = {**params["head"], "weight": params["embed"]["tokens"]}
    params = {**params, "head": head}
    return model.replace(decoder=Decoder(arch), params=params, config=config)


def pruned_stacks(
    model: LanguageModel,
    place: tuple[int, str],
    strengths: Sequence[Any],
    method: Method,
    systems: Any = None,
    cutters: dict[str, Any] | None = None,
) -> tuple[tuple[MatrixSpec, ...], tuple[jax.Array, ...]]:
    """Paths within a layer, each with its matrices stacked over strengths.

    ``place`` is a layer and a module; ``cutters`` keeps what strengths share, such as
    decompositions, by the name of the matrix.
    """
    specs = module_matrices(model, *place)
    kept_table(method, model.params, specs, strengths)
    stacks, cutters = [], {} if cutters is None else cutters
    for number, spec in enumerate(specs):
        W = get_matrix(model.params, spec)
        if spec.name not in cutters:
            whole, at = gathered(W, number), (place[0], spec.name)
            cutters[spec.name] = cutter_of(whole, method, systems, at)
        stack = jnp.stack([cutters[spec.name](one) for one in strengths])
        stacks.append(spread_like(stack, W))
    inside = tuple(dataclasses.replace(s, path=s.path[2:]) for s in specs)
    return inside, tuple(stacks)


def cutter_of(
    W: Any, method: Method, systems: Any, place: tuple[int | None, str]
) -> Callable[[Any], Any]:
    """A function from a strength to the pruned matrix, in the dtype of W.

    Where a strength keeps all of it, the matrix is unchanged; it is decomposed once,
    for the first strength that does not. ``place`` is the layer, ``None`` outside of
    the layers, and the name of the matrix.
    """
    W, full = checked(place[1], W, finite), method.kept(W.shape, 0)

    @functools.cache
    def whole():
        return method.cutter(W, place)

    @functools.cache
    def parts():
        return SVD(*map(jnp.asarray, systems.of(W)))

    def cut(strength):
        kept = method.kept(W.shape, strength)
        if kept == full:
            return W
        # On a GPU the default precision would round the factors to TF32.
        with jax.default_matmul_precision("highest"):
            if systems is None or not method.spectral:
                return whole()(strength).astype(W.dtype)
            if (known := parts().s.size) < kept:
                layer, name = place
                where = name if layer is None else f"{name} in layer {layer}"
                wanted = f"at least {kept} singular values of {where}"
                raise wrong("systems", wanted, known)
            sized: Any = method
            return sized.by_size(W, parts())(kept).astype(W.dtype)

    return cut
