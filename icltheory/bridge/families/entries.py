"""Lists every tensor in the checkpoint of an architecture."""

import dataclasses
import functools
from collections.abc import Iterator

import jax

from icltheory._checks import check_choice
from icltheory.bridge._paths import leaf_at
from icltheory.bridge.architecture import Architecture
from icltheory.bridge.decoder import Decoder
from icltheory.bridge.families.declare import Entry, Family, Stored
from icltheory.bridge.families.registry import FAMILIES

__all__ = ["entries_of"]

# Names in checkpoints of the leaves of norms; others keep their names.
_LEAVES = {"scale": "weight"}


def entries_of(arch: Architecture, prefix: str | None = None) -> tuple[Entry, ...]:
    """Returns the tensors of a checkpoint with the parameters that they hold.

    Args:
        arch: The architecture; its family says the names.
        prefix: What stands before every name but the head's, if not what the family
            says; empty in checkpoints of the bare decoder.

    Returns:
        One record for each tensor; a tied head is none.

    Example:
        >>> from icltheory.bridge.families import read_architecture
        >>> config = {"model_type": "gpt2", "n_embd": 4, "n_head": 2, "n_layer": 1}
        >>> arch = read_architecture(config)
        >>> [e.name for e in entries_of(arch) if len(e.paths) == 3]
        ['transformer.h.0.attn.c_attn.bias', 'transformer.h.0.attn.c_attn.weight']
    """
    check_choice("arch.family", arch.family, tuple(FAMILIES))
    family = FAMILIES[arch.family]
    before = family.prefix if prefix is None else prefix
    return tuple(_all(family, arch, before))


def _all(family: Family, arch: Architecture, before: str) -> Iterator[Entry]:
    shapes = _shapes(arch)
    tables = {"tokens": family.embed, "positions": family.positions}
    for leaf, shape in shapes["embed"].items():
        yield _one(f"{before}{tables[leaf]}.weight", ("embed", leaf), shape)
    for layer in range(arch.num_layers):
        start = f"{before}{family.layer.format(layer)}."
        for stored in family.modules:
            for one in _each(stored, arch):
                yield from _module(one, arch, start, layer, shapes["layer"])
    for where, name in (
        ("final_norm", before + family.final_norm),
        ("head", family.head),
    ):
        for leaf, shape in shapes[where].items():
            yield _one(f"{name}.{_LEAVES.get(leaf, leaf)}", (where, leaf), shape)


def _each(stored: Stored, arch: Architecture) -> Iterator[Stored]:
    """Yields the module itself, or one module per expert."""
    if "{expert}" not in stored.name:
        yield stored
        return
    if arch.experts is None:
        raise ValueError(
            f"experts: expected Experts for the family {arch.family}, got None"
        )
    for number in range(arch.experts.num):
        parts = tuple(part.format(expert=number) for part in stored.parts)
        name = stored.name.format(expert=number)
        yield dataclasses.replace(stored, name=name, parts=parts)


def _module(stored: Stored, arch, start, layer, shapes) -> Iterator[Entry]:
    parts = [tuple(part.split(".")) for part in stored.parts]
    modules = [leaf_at(shapes, part) for part in parts]
    for leaf in modules[0]:
        yield Entry(
            name=f"{start}{stored.name}.{_LEAVES.get(leaf, leaf)}",
            paths=tuple(("layers", layer, *part, leaf) for part in parts),
            shapes=tuple(module[leaf] for module in modules),
            transposed=stored.transposed and leaf == "weight",
            by_head=arch.num_heads if stored.by_head else 0,
        )


def _one(name, path, shape):
    return Entry(name, (path,), (shape,))


@functools.lru_cache(maxsize=32)
def _shapes(arch):
    """Returns the shapes of the parameters; all layers have the same.

    Tracing takes a twentieth of a second, and a plan of a run asks often.
    """
    tree = jax.eval_shape(Decoder(arch).init, jax.random.key(0))
    tree = {**tree, "layer": tree["layers"][0]}
    return jax.tree.map(lambda leaf: tuple(leaf.shape), tree)
