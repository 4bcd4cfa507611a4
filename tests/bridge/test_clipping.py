"""Several modules at once, ranks, and matrices outside of the layers."""

import jax
import numpy as np
import pytest

from icltheory.bridge import load_checkpoint, prune_model, save_checkpoint, size_report
from icltheory.pruning import Intervention, Rank
from tests.bridge.tiny import model_of
from tests.oracles import truncate
from tests.raising import raises

IDS = np.array([[1, 2, 3, 4]])


def ends(model):
    head = model.params["head"].get("weight")
    return np.asarray(model.params["embed"]["tokens"]), head


def test_several_modules_each_at_its_own_strength():
    model = model_of("llama")
    queries = Intervention(1, "W_Q,W_K", Rank(3))
    new = prune_model(model, ["0:mlp:0.5", queries, "head:rank=5"])
    attn, old = (m.params["layers"][1]["attn"] for m in (new, model))
    for name in ("W_Q", "W_K"):
        W = old[name]["weight"]
        np.testing.assert_allclose(attn[name]["weight"], truncate(W, 3), atol=1e-5)
    assert attn["W_V"] is old["W_V"]
    W = model.params["layers"][0]["mlp"]["W_in"]["weight"]
    found = new.params["layers"][0]["mlp"]["W_in"]["weight"]
    np.testing.assert_allclose(found, truncate(W, 6), atol=1e-5)
    np.testing.assert_allclose(ends(new)[1], truncate(ends(model)[1], 5), atol=1e-5)
    np.testing.assert_array_equal(ends(new)[0], ends(model)[0])


def test_a_rank_is_a_bound_for_every_matrix_of_a_module():
    """Keys and values of 12 rows of 24 queries: rank 12 is all of these."""
    model = model_of("llama")
    new = prune_model(model, "1:attn:rank=12").params["layers"][1]["attn"]
    for name, own in new.items():
        old = model.params["layers"][1]["attn"][name]["weight"]
        np.testing.assert_allclose(own["weight"], truncate(old, 12), atol=1e-5)
    with raises("rank: expected 1 <= rank <= 12, got 13"):
        prune_model(model, "1:attn:rank=13")


@pytest.mark.parametrize("family", ["qwen2", "gpt2"])
def test_clipping_one_of_two_tied_ends_unties_them(family, tmp_path):
    model = model_of(family)
    assert model.arch.tied
    table = ends(model)[0]
    for text, which in (("embeddings:rank=4", 0), ("head:rank=4", 1)):
        new = prune_model(model, [text])
        assert not new.arch.tied
        np.testing.assert_allclose(ends(new)[which], truncate(table, 4), atol=1e-5)
        np.testing.assert_array_equal(ends(new)[1 - which], table)
        assert new.config["tie_word_embeddings"] is False
        assert new.num_layers == model.num_layers
    both = prune_model(model, ["embeddings:rank=4", "head:rank=6"])
    np.testing.assert_allclose(ends(both)[0], truncate(table, 4), atol=1e-5)
    np.testing.assert_allclose(ends(both)[1], truncate(table, 6), atol=1e-5)
    folder = save_checkpoint(both, tmp_path / family, factorised=[(None, "embeddings")])
    again = load_checkpoint(folder)
    np.testing.assert_allclose(ends(again)[0], ends(both)[0], atol=1e-5)
    np.testing.assert_array_equal(ends(again)[1], ends(both)[1])


def test_clipping_both_tied_ends_keeps_them_tied():
    model = model_of("qwen2")
    new = prune_model(model, ["embeddings,head:rank=4"])
    assert new.decoder is model.decoder
    table, head = ends(new)
    assert head is None
    np.testing.assert_allclose(table, truncate(ends(model)[0], 4), atol=1e-5)
    hidden = np.asarray(new.logits(IDS))
    assert np.isfinite(hidden).all()


class Halves:
    """A store whose singular values are half of the true ones."""

    def __init__(self, count=None):
        self.count, self.asked = count, 0

    def of(self, W):
        self.asked += 1
        U, s, Vt = np.linalg.svd(np.asarray(W), full_matrices=False)
        return U[:, : self.count], s[: self.count] / 2, Vt[: self.count]


@pytest.mark.parametrize("family", ["llama", "gptj"])
def test_matrices_are_those_of_the_store(family):
    model, systems = model_of(family), Halves()
    same = prune_model(model, "0:mlp:0", systems=systems).params["layers"][0]["mlp"]
    assert (same, systems.asked) == (model.params["layers"][0]["mlp"], 0)
    new = prune_model(model, ["0:mlp:0.5", "embeddings:rank=4"], systems=systems)
    mlp, old = (m.params["layers"][0]["mlp"] for m in (new, model))
    for name in ("W_in", "W_out"):
        W = old[name]["weight"]
        np.testing.assert_allclose(mlp[name]["weight"], truncate(W, 6) / 2, atol=1e-5)
    table = truncate(ends(model)[0], 4) / 2
    np.testing.assert_allclose(ends(new)[0], table, atol=1e-5)
    assert systems.asked == 1 + len(old)
    for text, count, said in (
        ("0:W_in:0.5", 5, "6 singular values of W_in in layer 0, got 5"),
        ("embeddings:rank=4", 3, "4 singular values of embeddings, got 3"),
    ):
        with raises(f"systems: expected at least {said}"):
            prune_model(model, text, systems=Halves(count))


def test_a_rank_in_the_report_of_sizes():
    model = model_of("llama")
    report = size_report(model, 0, "W_Q", Rank(2))
    assert report == size_report(model, 0, "W_Q", 1 - 2 / 12)
    table = size_report(model, None, "embeddings", Rank(2))
    assert (table.dense, table.stored) == (37 * 12, 2 * (37 + 12))


def test_what_is_tied_saves_nothing_where_only_one_end_is_clipped():
    model = model_of("qwen2")
    total = sum(leaf.size for leaf in jax.tree.leaves(model.params))
    factors = 2 * (37 + 12)
    for module, saved in (
        *(("embeddings", -factors), ("head", -factors)),
        ("embeddings,head", 37 * 12 - factors),
    ):
        report = size_report(model, None, module, Rank(2))
        assert report.model_saved == saved / total
        clipped = prune_model(model, Intervention(None, module, Rank(2)))
        matrices = sum(leaf.size for leaf in jax.tree.leaves(clipped.params))
        dense = matrices - report.dense + report.stored  # with two factors
        assert total - dense == saved


def test_what_is_not_there_is_refused():
    model = model_of("llama")
    twice = ["1:mlp:0.5", "1:W_in:rank=2"]
    for interventions, message in (
        ("mlp:0.5", "module: expected one of 'embeddings', 'head', got 'mlp'"),
        ("1:head:0.5", "module: expected one of 'all', 'attn', 'mlp', 'W_Q'"),
        (twice, "interventions: expected each matrix once, got W_in in"),
        ("mlp", "intervention: expected LAYER:MATRICES:STRENGTH"),
    ):
        with raises(message):
            prune_model(model, interventions)
