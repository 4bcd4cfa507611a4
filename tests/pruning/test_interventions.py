"""Interventions as text and as records, and several of them on one model."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from icltheory.attention import LinearAttentionStack
from icltheory.layered import LayeredStack, MatrixSpec
from icltheory.pruning import Intervention, Rank, prune_model
from tests.pruning.models import MODEL, STACK
from tests.raising import raises

FORMS = (
    "intervention: expected LAYER:MATRICES:STRENGTH such as 26:mlp:0.9 or "
    "3:W_Q,W_K:rank=8, or MATRICES:STRENGTH outside of the layers such as "
    "head:rank=16, got "
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("26:mlp:0.9", Intervention(26, ("mlp",), 0.9)),
        ("27:W_O:0.75", Intervention(27, ("W_O",), 0.75)),
        ("3:W_Q,W_K:rank=8", Intervention(3, ("W_Q", "W_K"), Rank(8))),
        ("embeddings:0.5", Intervention(None, ("embeddings",), 0.5)),
        ("head:rank=16", Intervention(None, ("head",), Rank(16))),
        ("0:expert_3.W_in:0.995", Intervention(0, ("expert_3.W_in",), 0.995)),
        ("0:attn:0", Intervention(0, ("attn",), 0)),
    ],
)
def test_text_and_record_are_each_others(text, expected):
    assert Intervention.parse(text) == expected
    assert str(expected) == text


def test_other_ways_to_write_the_same():
    assert Intervention(1, "W_Q,W_K", 0.5).matrices == ("W_Q", "W_K")
    assert Intervention.parse("1:mlp:rate=0.5") == Intervention(1, ("mlp",), 0.5)
    assert Intervention(1, ("mlp",), Rank(4)).strength == Rank(4)
    assert Intervention(1, ("mlp",), 0.5).strength == 0.5


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("mlp", None),
        ("1:2:3:4", None),
        ("-1:mlp:0.5", "layer: expected a number >= 0, got '-1'"),
        (":mlp:0.5", "layer: expected a number >= 0, got ''"),
        ("1::0.5", "matrices: expected names, got ('',)"),
        ("1:W_Q,:0.5", "matrices: expected names, got ('W_Q', '')"),
        ("1:mlp:1", "rate: expected a number in [0, 1), got 1.0"),
        ("1:mlp:nan", "rate: expected a number in [0, 1), got nan"),
        ("1:mlp:rank=0", "rank: expected a positive integer, got 0"),
    ]
    + [
        (
            f"1:mlp:{strength}",
            f"strength: expected a rate, or rank= and a whole number, got {strength!r}",
        )
        for strength in ("half", "rank=8.5", "rank=", "size=8", "")
    ],
)
def test_other_texts_are_refused_in_one_line(text, why):
    with raises(FORMS + repr(text) + (f" ({why})" if why else "")):
        Intervention.parse(text)


def test_wrong_strengths_and_layers():
    with raises("rate: expected a number in [0, 1), got None"):
        Intervention(0, ("mlp",), None)
    with raises("layer: expected"):
        Intervention(-1, ("mlp",), 0.5)


def test_each_module_is_pruned_from_the_original_weights_in_any_order():
    several = ["1:W_V:0.5", Intervention(1, ("W_K", "W_Q"), Rank(2)), "3:attn:0.75"]
    new = prune_model(MODEL, STACK, several)
    step = prune_model(MODEL, STACK, "1:W_V:0.5")
    step = prune_model(MODEL, step, "1:W_K,W_Q:rank=2")
    step = prune_model(MODEL, step, "3:attn:0.75")
    jax.tree.map(np.testing.assert_array_equal, new, step)
    other = prune_model(MODEL, STACK, several[::-1])
    jax.tree.map(np.testing.assert_array_equal, new, other)
    same = prune_model(MODEL, STACK, [])
    assert same is STACK


@pytest.mark.usefixtures("as_for_a_user")
def test_wrong_interventions_of_a_model():
    known = "'all', 'attn', 'W_V', 'W_K', 'W_Q'"
    with raises(f"module: expected one of {known}, got 'mpl'"):
        prune_model(MODEL, STACK, ["0:W_V,mpl:0.5"])
    with raises("layer: expected 0 to 3, got 9"):
        prune_model(MODEL, STACK, ["9:attn:0.5"])
    with raises(
        "interventions: expected each matrix once, got W_V in 0:attn:0.5 and "
        "0:W_V:rank=2"
    ):
        prune_model(MODEL, STACK, ["0:attn:0.5", "0:W_V:rank=2"])
    with raises("interventions: expected a sequence, got 3"):
        prune_model(MODEL, STACK, 3)
    with raises("layer: expected a number, as a Batched has no matrices outside"):
        prune_model(MODEL, STACK, ["head:0.5"])


@dataclasses.dataclass(frozen=True)
class WithEnds(LayeredStack):
    """A stack with a table in front, whose transpose is read at the end as well."""

    tied: bool = True

    def end_matrices(self):
        head = ("table",) if self.tied else ("head",)
        return (
            MatrixSpec("embeddings", "ends", ("table",)),
            MatrixSpec("head", "ends", head),
        )


def test_matrices_outside_of_the_layers():
    W = jnp.asarray(np.random.default_rng(0).normal(size=(7, 4)))
    groups = LayeredStack.of(LinearAttentionStack(*[jnp.ones((1, 2, 2))] * 3)).groups
    params = {"table": W, "head": W}
    model = WithEnds(1, groups, tied=False)
    new = prune_model(model, params, ["embeddings:0.5", "head:rank=3"])
    ranks = [int(np.linalg.matrix_rank(new[name])) for name in ("table", "head")]
    assert ranks == [2, 3]
    with raises("module: expected one of 'embeddings', 'head', got 'all'"):
        prune_model(model, params, ["all:0.5"])
    tied = WithEnds(1, groups)
    both = prune_model(tied, params, ["embeddings,head:0.5"])
    np.testing.assert_array_equal(both["table"], new["table"])
    with raises("module: expected a module without tied matrices, got embeddings,"):
        prune_model(tied, params, ["embeddings:0.5"])
