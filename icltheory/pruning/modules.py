"""Where the matrices of a module of one layer live."""

from typing import Any

from icltheory._checks import check_choice, check_nonnegative_int
from icltheory.layered import LayeredModel, MatrixSpec, check_layered
from icltheory.layered.matrices import in_module


def module_matrices(
    model: LayeredModel, layer: int | None, module: str
) -> tuple[MatrixSpec, ...]:
    """Where the weight matrices of a module live; a matrix with two names, once.

    Matrices outside of the layers, such as a table of embeddings, are those of the
    model's method ``end_matrices()``.

    Args:
        layer: Number of the layer, from 0; ``None`` for matrices outside of the layers.
        module: Name of one matrix, such as ``"W_V"``; of a unit of several, such as
            ``"expert_3"``; ``"attn"``, ``"mlp"``, or ``"all"``; or several of these,
            joined by commas. Outside of the layers names of matrices alone.

    Example:
        >>> from icltheory.layered import LayeredStack
        >>> groups = (("W_V", "attn"), ("W_K", "attn"), ("W_Q", "attn"))
        >>> [spec.name for spec in module_matrices(LayeredStack(2, groups), 1, "attn")]
        ['W_V', 'W_K', 'W_Q']

    Source: Yao et al. (2024), section 2 and Algorithm 1.
    """
    check_layered(model)
    if layer is None:
        specs = end_matrices(model)
    else:
        check_nonnegative_int("layer", layer)
        if layer >= model.num_layers:
            last = model.num_layers - 1
            raise ValueError(f"layer: expected 0 to {last}, got {layer}")
        specs = model.matrices(layer)
    # Modules in order of size: all, groups, units, single matrices.
    known = [
        name for depth in range(4) for s in specs for name in s.modules[depth:][:1]
    ]
    for name in module.split(","):
        check_choice("module", name, tuple(dict.fromkeys(known)))
    first: dict[Any, MatrixSpec] = {}
    for spec in specs:
        if in_module(module, spec.group, spec.name):
            first.setdefault((spec.path, spec.rows), spec)
    return tuple(first.values())


def end_matrices(model: LayeredModel) -> tuple[MatrixSpec, ...]:
    """Returns the matrices of a model outside of its layers."""
    own = getattr(model, "end_matrices", None)
    if own is None:
        kind = type(model).__name__
        raise ValueError(
            f"layer: expected a number, as a {kind} has no matrices outside of its "
            "layers, got None"
        )
    return own()


def tied_to(model: LayeredModel, layer: int | None, module: str) -> tuple[str, ...]:
    """Returns other names of a module's matrices, under which they are also used."""
    if layer is not None:
        return ()
    paths = {spec.path for spec in module_matrices(model, layer, module)}
    return tuple(
        spec.name
        for spec in end_matrices(model)
        if spec.path in paths and not in_module(module, spec.group, spec.name)
    )
