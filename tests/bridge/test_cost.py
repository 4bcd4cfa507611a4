"""Counts from an architecture against weights that exist and known totals."""

import jax
import numpy as np
import pytest

from experiments.prune_llm.published_models import CONFIGS
from icltheory.bridge.cost import model_cost
from icltheory.bridge.families import read_architecture
from icltheory.layered import get_matrix
from tests.bridge.tiny import CONFIGS as TINY
from tests.bridge.tiny import model_of


@pytest.mark.parametrize("family", TINY)
def test_counts_are_those_of_weights(family):
    model = model_of(family)
    cost = model_cost(model.arch, "float32")
    leaves = jax.tree.leaves(model.params)
    assert cost.parameters == sum(leaf.size for leaf in leaves)
    assert cost.num_bytes == sum(leaf.nbytes for leaf in leaves)
    named = {s.name: get_matrix(model.params, s).shape for s in model.matrices(1)}
    router = {"router": cost.matrices["router"]} if model.arch.experts else {}
    assert cost.matrices == named | router


def test_operations_are_those_of_a_loop_over_the_products():
    model = model_of("llama")
    a, context = model.arch, 7
    total = 0
    for m, n in model_cost(a).matrices.values():
        total += sum(2 for _ in np.ndindex(m, n))
    # Scores and mixing: a product and a sum each, for every head and coordinate.
    total += 2 * 2 * context * a.num_heads * a.head_dim
    assert model_cost(a, context=context).layer_flops == total


def test_the_published_models_have_their_known_sizes():
    """6,050,882,784 and 6,738,415,616 parameters, as their model cards say."""
    sizes = {"gptj": 6_050_882_784, "llama2": 6_738_415_616}
    for name, known in sizes.items():
        cost = model_cost(read_architecture(CONFIGS[name]))
        assert cost.parameters == known
        assert cost.num_bytes == 2 * known
    with pytest.raises(ValueError, match="context"):
        model_cost(model_of("llama").arch, context=-1)


def test_operations_of_singular_values():
    cost = model_cost(read_architecture(CONFIGS["gptj"]))
    n, m = 4096, 16384
    assert cost.svd_flops("W_Q") == 4 * n**3 - 4 * n**3 // 3
    assert cost.svd_flops("W_in") == 4 * m * n**2 - 4 * n**3 // 3
