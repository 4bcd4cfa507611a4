"""The layered-model protocol, which pruning, spectra and caching use.

A model is a small hashable description; its parameters are a plain pytree beside it.
The same few functions then serve an attention stack, a Flax transformer and a large
language model: run all layers, stop before layer l, or resume there from a cached
hidden state; change the hidden state on the way; read or replace one named weight
matrix; and, where a model offers it, read the attention of its heads.

Stability: stable.
"""

from icltheory.layered.attention import (
    AttentionReadable,
    LayeredStack,
    OVFactors,
    attention_patterns,
)
from icltheory.layered.matrices import MatrixSpec, get_matrix, replace_matrix
from icltheory.layered.protocol import (
    Batched,
    LayeredModel,
    all_hidden,
    check_layered,
    check_model,
    forward,
    forward_edited,
    forward_from,
    hidden_before,
)

__all__ = [
    "AttentionReadable",
    "Batched",
    "LayeredModel",
    "LayeredStack",
    "MatrixSpec",
    "OVFactors",
    "all_hidden",
    "attention_patterns",
    "check_layered",
    "check_model",
    "forward",
    "forward_edited",
    "forward_from",
    "get_matrix",
    "hidden_before",
    "replace_matrix",
]
