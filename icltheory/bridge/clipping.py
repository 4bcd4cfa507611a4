"""Clips modules of a language model: in its layers, embeddings and output head."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from icltheory._checks import checked, finite
from icltheory._names import Rule
from icltheory.bridge._arrays import gathered, spread_like
from icltheory.bridge._cutting import cutter_of
from icltheory.bridge.decoder import Decoder
from icltheory.bridge.families import read_architecture
from icltheory.bridge.model import LanguageModel
from icltheory.layered import get_matrix, replace_matrix
from icltheory.pruning import Intervention, module_matrices
from icltheory.pruning.interventions import read_interventions
from icltheory.pruning.modules import Cutting, tied_to
from icltheory.pruning.rates import strength_of

__all__ = ["clip_module", "clip_modules"]


def clip_module(
    model: LanguageModel,
    layer: int | None,
    module: str,
    rate: Any = None,
    *,
    rank: int | None = None,
    rule: Rule = "floor",
    at_least_one: bool = False,
    systems: Any = None,
) -> LanguageModel:
    r"""Clips all matrices of a module at one rate or to one rank.

    .. math:: W \mapsto U_{:r} S_{:r} V_{:r}^\top , \qquad
              r = \lfloor \min(m, n) (1 - \xi) \rfloor .

    Decomposed in float32 and stored in the dtype it had; at rate 0 unchanged to the
    bit. Outside of the layers are the table of the token ``"embeddings"`` and the
    ``"head"``. Where they are one tied matrix, ``"embeddings,head"`` clips it and the
    model stays tied; clipping one of them unties the model, whose other end keeps the
    original weights, and its config says so.

    Args:
        model: The model; left as it is.
        layer: Number of the layer, from 0; ``None`` for embeddings and head.
        module: One matrix, such as ``"W_Q"``, or ``"attn"``, ``"mlp"``, ``"all"``, or
            several names joined by commas.
        rate: Clipping rate :math:`\xi`, in [0, 1); this or ``rank``.
        rank: Largest rank r that is left; this or ``rate``.
        rule: How a rate becomes a rank: ``"floor"``, ``"nearest"`` or ``"ceil"``.
        at_least_one: Whether a rank that rounds to 0 becomes 1 instead of an error.
        systems: Keeps singular systems: ``systems.of(W)`` is ``(U, s, Vt)``. A
            decomposition each if ``None``.

    Returns:
        The clipped model; it shares every other weight with ``model``.

    Example:
        >>> import jax
        >>> import numpy as np
        >>> from icltheory.bridge import Architecture
        >>> arch = Architecture(family="gpt2", vocab_size=50, width=8, num_layers=2,
        ...     num_heads=2, num_kv_heads=2, head_dim=4, mlp_width=32, max_positions=16)
        >>> decoder = Decoder(arch)
        >>> model = LanguageModel(decoder, decoder.init(jax.random.key(0)))
        >>> clipped = clip_module(model, 1, "mlp", 0.75)
        >>> W = clipped.params["layers"][1]["mlp"]["W_in"]["weight"]
        >>> W.shape, int(np.linalg.matrix_rank(W))
        ((32, 8), 2)

    Source: Yao et al. (2024), Algorithm 1, the function Clip.
    """
    specs = module_matrices(model, layer, module)  # checks the layer and the module
    if tied_to(model, layer, module):
        model = untied(model)
        specs = module_matrices(model, layer, module)
    cutting, strength = Cutting("svd", rule, at_least_one), strength_of(rate, rank)
    kept = cutting.kept_table(model.params, specs, [strength])[0]
    params = model.params
    for spec, size in zip(specs, kept, strict=True):
        old = get_matrix(params, spec)
        W = gathered(old, 0)
        W = checked(spec.name, W, finite)
        new = cutter_of(W, cutting, systems, [size], layer, spec.name)(size)
        if new is not W:
            params = replace_matrix(params, spec, spread_like(new, old))
    return model.replace(params=params)


def clip_modules(
    model: LanguageModel,
    interventions: Sequence[Intervention | str],
    *,
    rule: Rule = "floor",
    at_least_one: bool = False,
    systems: Any = None,
) -> LanguageModel:
    """Clips several modules, each at its own rate or to its own rank.

    No matrix may occur twice, so the order of the interventions plays no part. Tied
    embeddings and head are treated as :func:`clip_module` does.

    Args:
        model: The model; left as it is.
        interventions: What is clipped, as records or as text such as ``"26:mlp:0.9"``,
            ``"3:W_Q,W_K:rank=8"`` or ``"embeddings:0.5"``.
        rule: How a rate becomes a rank: ``"floor"``, ``"nearest"`` or ``"ceil"``.
        at_least_one: Whether a rank that rounds to 0 becomes 1 instead of an error.
        systems: Keeps singular systems: ``systems.of(W)`` is ``(U, s, Vt)``. A
            decomposition each if ``None``.

    Returns:
        The clipped model.

    Example:
        >>> import jax
        >>> from icltheory.bridge import Architecture
        >>> arch = Architecture(family="gpt2", vocab_size=50, width=8, num_layers=2,
        ...     num_heads=2, num_kv_heads=2, head_dim=4, mlp_width=32, max_positions=16)
        >>> decoder = Decoder(arch)
        >>> model = LanguageModel(decoder, decoder.init(jax.random.key(0)))
        >>> clip_modules(model, ["1:mlp:0.5", "0:W_Q,W_K:rank=2"]).num_layers
        2

    Source: Yao et al. (2024), Algorithm 1, the function Clip; Sharma et al. (2023), the
    compositions.
    """
    model, read = prepared(model, interventions)
    for one in read:
        model = clip_module(
            model,
            one.layer,
            one.module,
            one.rate,
            rank=one.rank,
            rule=rule,
            at_least_one=at_least_one,
            systems=systems,
        )
    return model


def prepared(
    model: LanguageModel, interventions: Sequence[Intervention | str]
) -> tuple[LanguageModel, tuple[Intervention, ...]]:
    """Returns the interventions and the model for them, untied if they require it."""
    for one in interventions if not isinstance(interventions, str) else ():
        (read,) = read_interventions(model, [one])
        if tied_to(model, read.layer, read.module):
            model = untied(model)
    return model, read_interventions(model, interventions)


def untied(model: LanguageModel) -> LanguageModel:
    """Returns the model with a separate head that copies the embeddings."""
    arch = dataclasses.replace(model.arch, tied=False)
    config = dict(model.config)
    if config:
        config["tie_word_embeddings"] = False
        if read_architecture(config, model.source or "config") != arch:
            raise ValueError(
                f"model: expected a config whose head can be untied, got {arch.family}"
            )
    params = model.params
    head = {**params["head"], "weight": params["embed"]["tokens"]}
    return model.replace(
        decoder=Decoder(arch), params={**params, "head": head}, config=config
    )
