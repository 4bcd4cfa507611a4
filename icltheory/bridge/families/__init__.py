"""The decoder families, each a declaration.

A family says how its config describes an :class:`~icltheory.bridge.Architecture` and
under which names a checkpoint stores which matrices, and in what layout. The same
declaration serves reading and writing.
"""

import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax

from icltheory._checks import check_choice
from icltheory.bridge.architecture import Architecture
from icltheory.bridge.decoder import Decoder
from icltheory.bridge.families import gemma, gpt, llama
from icltheory.bridge.families.declare import Config, Entry, Family
from icltheory.bridge.sharding import leaf_at

__all__ = ["FAMILIES", "Entry", "Family", "entries_of", "read_architecture"]

FAMILIES: dict[str, Family] = {
    family.name: family for module in (gpt, llama, gemma) for family in module.FAMILIES
}
# What no family implements, with the only value that is accepted.
_REFUSED = {
    "per_layer_config": None,
    "is_causal": True,
    "use_bidirectional_attention": False,
}


def read_architecture(
    config: Mapping[str, Any], source: Any = "config.json"
) -> Architecture:
    """Returns the architecture that a Hugging Face config describes.

    An absent entry has the default of its family. An entry that is not implemented,
    such as quantised weights or an unknown activation, is an error.

    Example:
        >>> arch = read_architecture({"model_type": "gptj", "n_layer": 2})
        >>> arch.num_layers, arch.parallel, arch.rotary.dim
        (2, True, 64)
    """
    kind = config.get("model_type")
    if not isinstance(kind, str) or kind not in FAMILIES:
        known = ", ".join(sorted(FAMILIES))
        raise ValueError(f"{source}: expected model_type one of {known}, got {kind!r}")
    found = config.get("quantization_config")
    if found is not None:  # weights are integers with scales
        how = found.get("quant_method") if isinstance(found, dict) else None
        raise ValueError(
            f"{source}: quantization_config: expected weights in floating point, got "
            f"quantised ones{f' ({how})' if isinstance(how, str) else ''}; dequantise "
            "the checkpoint, save it in bfloat16 without this entry, and load that"
        )
    try:
        for name, only in _REFUSED.items():
            Config(config).refuse(name, unless=only)
        return FAMILIES[kind].architecture(config)
    except ValueError as error:
        raise ValueError(f"{source}: {error}") from None


def entries_of(arch: Architecture, prefix: str | None = None) -> tuple[Entry, ...]:
    """Returns the tensors of a checkpoint with the parameters that they hold.

    A tied head is none of them. ``prefix`` stands before every name but the head's; it
    is that of the family unless given, and empty in checkpoints of the bare decoder.

    Example:
        >>> config = {"model_type": "gpt2", "n_embd": 4, "n_head": 2, "n_layer": 1}
        >>> arch = read_architecture(config)
        >>> [e.name for e in entries_of(arch) if len(e.paths) == 3]
        ['transformer.h.0.attn.c_attn.bias', 'transformer.h.0.attn.c_attn.weight']
    """
    check_choice("arch.family", arch.family, tuple(FAMILIES))
    family = FAMILIES[arch.family]
    before = family.prefix if prefix is None else prefix
    return tuple(_entries(family, arch, before))


def _entries(family: Family, arch: Architecture, before: str) -> Iterator[Entry]:
    shapes = _shapes(arch)
    tables = {"tokens": family.embed, "positions": family.positions}
    for leaf, shape in shapes["embed"].items():
        yield Entry(f"{before}{tables[leaf]}.weight", (("embed", leaf),), (shape,))
    modules = dict(_modules(family, arch))
    for layer in range(arch.num_layers):
        start = f"{before}{family.layer.format(layer)}."
        for name, parts in modules.items():
            paths = [("layers", layer, *part.split(".")) for part in parts.split()]
            by_head = arch.num_heads if family.by_head and len(paths) > 1 else 0
            yield from _leaves(start + name, paths, shapes, family.transposed, by_head)
    yield from _leaves(before + family.final_norm, [("final_norm",)], shapes)
    yield from _leaves(family.head, [("head",)], shapes)


def _leaves(
    name: str, paths: Sequence[tuple], shapes: Any, transposed=False, by_head=0
) -> Iterator[Entry]:
    """Yields the tensors of one module, which holds one or several of ours."""
    modules = [leaf_at(shapes, path) for path in paths]
    for leaf in modules[0]:
        yield Entry(
            f"{name}.{'weight' if leaf == 'scale' else leaf}",  # of a norm
            tuple((*path, leaf) for path in paths),
            tuple(module[leaf] for module in modules),
            transposed and len(modules[0][leaf]) == 2,
            by_head,
        )


def _modules(family: Family, arch: Architecture) -> Iterator[tuple[str, str]]:
    """Yields the modules of a layer and their parts, one of each expert."""
    for name, parts in family.modules.items():
        if "{expert}" not in name:
            yield name, parts
        elif arch.experts is None:
            wanted = f"Experts for the family {arch.family}"
            raise ValueError(f"experts: expected {wanted}, got None")
        else:
            for number in range(arch.experts.num):
                yield name.format(expert=number), parts.format(expert=number)


@functools.lru_cache(maxsize=32)
def _shapes(arch):
    """Returns the shapes of the parameters, which take a twentieth of a second."""
    tree = jax.eval_shape(Decoder(arch).init, jax.random.key(0))
    return jax.tree.map(lambda leaf: tuple(leaf.shape), tree)
