"""Logits against torch's, on a tiny random model of every family.

One test reads one model in all its ways, so that it is compiled once.
"""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from icltheory.bridge import load_checkpoint
from icltheory.bridge.decoder import Tokens
from icltheory.bridge.families import FAMILIES as KNOWN
from icltheory.layered import get_matrix
from tests.bridge import parity_table, stored
from tests.bridge.fixture_models import FAMILIES, LENGTHS, UNPADDED
from tests.bridge.tiers import quick

# Torch in float32 is up to 4e-6 from itself in float64 on these models.
CLOSE = {"atol": 1e-5, "rtol": 0}
PREFIX, QUERIES = 5, (12, 7, 3)
# One model of every family, and one whose heads are half as many keys and values.
FIRST = {family: name for name, family in reversed(FAMILIES.items())}
EACH = {*FIRST.values(), "llama_groups"}


@pytest.mark.parametrize("name", quick(EACH, FAMILIES))
def test_logits_are_torchs(name, tmp_path):
    """Both styles of config; unpadded, and padded on either side."""
    ids, logits = stored.expected(name)
    models = [stored.load(name, tmp_path, style=style) for style in stored.STYLES]
    assert models[0].arch == models[1].arch
    for model, style in zip(models, stored.STYLES, strict=True):
        ours = model.logits(ids)
        assert ours.dtype == jnp.float32
        error = stored.difference(ours, logits)
        assert error <= CLOSE["atol"], style
    print(f"{name}: largest difference {error:.1e}")
    for side in () if name in UNPADDED else ("left", "right"):
        padded, mask = stored.pad(ids, side)
        ours = np.asarray(models[0].logits(padded, mask))
        assert np.isfinite(ours).all()
        for row, n in enumerate(LENGTHS):
            error = stored.difference(ours[row, mask[row]], logits[row, :n])
            assert error <= CLOSE["atol"], side


# One of each way through a block; the logits of all others are compared above.
BLOCKS = ("gptj", "gpt2", "llama_groups", "llama3", "llama_yarn", "mistral", "qwen3")
BLOCKS += ("phi", "phi3", "gpt_neox", "gemma", "mixtral", "gemma2", "gemma3", "opt")
BLOCKS += ("olmo2", "qwen2_mixed")


@pytest.mark.slow
@pytest.mark.parametrize("name", BLOCKS)
def test_parts_are_the_whole(name, tmp_path):
    """Block by block; and behind a prefix that rows share."""
    model = stored.load(name, tmp_path)
    ids, logits = stored.expected(name)
    padded, mask = stored.pad(ids, "left")
    streams, caches = stored.run(model, padded, mask)
    # Tests run with float64 switched on, which must not creep in.
    assert_dtype("float32", model, streams, caches)
    whole = np.asarray(stored.read_out(model.decoder, model.params, streams[-1]))
    for row, n in enumerate(LENGTHS):
        error = stored.difference(whole[row, mask[row]], logits[row, :n])
        assert error <= CLOSE["atol"]
    assert_pieces(model, ids)


def assert_dtype(dtype, model, streams, caches):
    """Of all weights, streams, keys and values."""
    kinds = {leaf.dtype for leaf in jax.tree.leaves(model.params)}
    kinds |= {stream.h.dtype for stream in streams}
    kinds |= {array.dtype for cache in caches for array in (cache.k, cache.v)}
    assert kinds == {jnp.dtype(dtype)}


def assert_pieces(model, ids):
    """All rows behind the first one's beginning, in one go and in two."""
    decoder, layers = model.decoder, model.params["layers"]
    ids = np.concatenate([np.tile(ids[:1, :PREFIX], (3, 1)), ids[:, PREFIX:]], axis=1)
    whole, caches = stored.run(model, ids, np.ones(ids.shape, bool))
    shared = jax.tree.map(lambda leaf: leaf[:1, :PREFIX], caches)
    queries, mask = stored.pad(ids[:, PREFIX:], "left", QUERIES)
    tokens = Tokens(queries, mask)
    stream = stored.embed_after(decoder, model.params, tokens, PREFIX)
    rest = zip(layers, shared, whole[1:], strict=True)
    for number, (layer, cache, after) in enumerate(rest):
        before, one = stream, decoder.of_layer(number)
        stream, own = stored.run_block(one, layer, before, cache)
        assert own.k.shape[:2] == queries.shape
        for row, n in enumerate(QUERIES):
            wanted = after.h[row, PREFIX : PREFIX + n]
            np.testing.assert_allclose(stream.h[row, mask[row]], wanted, **CLOSE)
    last, _ = stored.run_block(one, layers[-1], before, shared[-1], True)
    assert last.h.shape[1] == 1
    np.testing.assert_allclose(last.h[:, 0], stream.h[:, -1], **CLOSE)
    np.testing.assert_array_equal(last.positions[:, 0], PREFIX - 1 + mask.sum(1))


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["gptj", "gpt2", "mistral", "llama_yarn", "gemma3", "opt"]
)
def test_every_row_may_have_its_own_prefix(name, tmp_path):
    """Computed on its own, padded as the rest may be; compared with torch's logits."""
    model, (ids, logits) = stored.load(name, tmp_path), stored.expected(name)
    starts = np.array([5, 3, 1])
    prefix, seen = stored.pad(ids[:, :PREFIX], "left", starts)
    _, caches = stored.run(model, prefix, seen)
    rest = np.stack([np.roll(row, -n) for row, n in zip(ids, starts, strict=True)])
    tokens = Tokens(*stored.pad(rest[:, :12], "right", QUERIES))
    stream = stored.embed_after_rows(model.decoder, model.params, tokens, starts)
    layers = zip(model.params["layers"], caches, strict=True)
    for number, (layer, cache) in enumerate(layers):
        decoder = model.decoder.of_layer(number)
        stream, _ = stored.run_block(decoder, layer, stream, cache)
    ours = stored.read_out(model.decoder, model.params, stream)
    for row, (start, n) in enumerate(zip(starts, QUERIES, strict=True)):
        wanted = logits[row, start : start + n]
        assert stored.difference(ours[row, :n], wanted) <= CLOSE["atol"]


@pytest.mark.slow
@pytest.mark.parametrize("side", ["left", "right"])
def test_the_last_token_of_a_padded_row_is_a_token(side, tmp_path):
    model, (rows, logits) = stored.load("mistral", tmp_path), stored.expected("mistral")
    ids, mask = stored.pad(rows, side)
    streams, _ = stored.run(model, ids, mask)
    layer = model.params["layers"][-1]
    last, _ = stored.run_block(model.decoder, layer, streams[-2], None, True)
    ours = stored.read_out(model.decoder, model.params, last)[:, 0]
    for row, length in enumerate(LENGTHS):
        np.testing.assert_allclose(ours[row], logits[row, length - 1], **CLOSE)


@pytest.mark.parametrize(
    "name", quick(["gptj"], ["gptj", "phi", "gemma", "qwen3", "llama_tied", "gemma2"])
)
def test_label_rows_are_rows_of_the_logits(name, tmp_path):
    model, (ids, logits) = stored.load(name, tmp_path), stored.expected(name)
    streams, _ = stored.run(model, ids, np.ones(ids.shape, bool))
    rows = np.array([7, 0, 30, 7])
    ours = stored.label_logits(model.decoder, model.params, streams[-1], rows)
    assert ours.dtype == jnp.float32
    assert stored.difference(ours, logits[..., rows]) <= CLOSE["atol"]


@pytest.mark.parametrize("name", quick(["gptj", "llama_groups"], FAMILIES))
def test_the_named_matrices_are_all_there_are(name, tmp_path):
    """Shapes (out, in); with the routers they are every parameter with two axes."""
    model = stored.load(name, tmp_path)
    a = model.arch
    inner, group = a.num_heads * a.head_dim, a.num_kv_heads * a.head_dim
    sizes = {"W_Q": (inner, a.width), "W_K": (group, a.width), "W_O": (a.width, inner)}
    sizes |= {"W_in": (a.mlp_width, a.width), "W_out": (a.width, a.mlp_width)}
    sizes |= {"W_V": sizes["W_K"], "W_gate": sizes["W_in"]}
    for layer, params in enumerate(model.params["layers"]):
        specs = model.matrices(layer)
        routers = a.experts is not None
        two_axes = sum(leaf.ndim == 2 for leaf in jax.tree.leaves(params))
        assert len(specs) + routers == two_axes
        for spec in specs:
            name = spec.name.rpartition(".")[2]
            assert get_matrix(model.params, spec).shape == sizes[name]


@pytest.mark.parametrize("said", [{}, {"hidden_activation": "gelu_pytorch_tanh"}])
def test_gemmas_gelu_is_the_tanh_form(said, tmp_path):
    """As the first files say it, and as those say it that were corrected."""
    folder = stored.checkpoint("gemma", tmp_path, style="config_old")
    config = json.loads((folder / "config.json").read_text())
    config |= {"hidden_act": "gelu"} | said
    (folder / "config.json").write_text(json.dumps(config))
    ids, logits = stored.expected("gemma")
    ours = load_checkpoint(folder, "float32").logits(ids)
    assert stored.difference(ours, logits) <= CLOSE["atol"]


@pytest.mark.slow
def test_padding_is_not_counted(tmp_path):
    """More columns than there are positions, but no more tokens."""
    model, (ids, logits) = stored.load("gpt2", tmp_path), stored.expected("gpt2")
    wide = np.pad(ids, ((0, 0), (7, 0)))
    assert wide.shape[1] > model.context_length
    mask = np.arange(wide.shape[1])[None] >= np.full((3, 1), 7)
    assert stored.difference(model.logits(wide, mask)[:, 7:], logits) <= CLOSE["atol"]


def test_the_page_lists_every_family_and_model():
    """With differences that the script measured, each within what is demanded here."""
    found = parity_table.listed(parity_table.PAGE.read_text())
    assert [family for family, *_ in found] == sorted(KNOWN)
    for family, names, error in found:
        assert names == [name for name in FAMILIES if FAMILIES[name] == family]
        assert 0 < error < CLOSE["atol"]


def test_every_family_has_its_fixture():
    assert set(FAMILIES.values()) == set(KNOWN)


# --- half precision against float32, within what its rounding can do

ROUNDOFF = {"bfloat16": 2.0**-8, "float16": 2.0**-11}
DRAWS = 8


def shake(params, size, rng):
    """Moves rows, columns and entries of every parameter by a relative amount.

    Rounding what a matrix reads or gives scales its columns or rows: this is the
    backward error of a forward pass. Beside each matrix numbers are rounded twice on
    either side, by a root mean square of at most ``size / sqrt(3)`` each, so that signs
    of that size are no less than the two together.
    """

    def move(leaf):
        ones = (1,) * (leaf.ndim - 1)
        moved = np.asarray(leaf)
        for shape in (leaf.shape, ones + leaf.shape[-1:], leaf.shape[:1] + ones):
            moved = moved * (1 + size * rng.choice([-1, 1], shape))
        return jnp.asarray(moved, leaf.dtype)

    return jax.tree.map(move, params)


def bound(model, ids, logits, size):
    """The largest change of a logit over random roundings of that size."""
    changes = []
    for seed in range(DRAWS):
        params = shake(model.params, size, np.random.default_rng(seed))
        moved = model.replace(params=params).logits(ids)
        changes.append(stored.difference(moved, logits))
    return max(changes)


@pytest.mark.slow
@pytest.mark.parametrize("name", BLOCKS[:2] + ("mistral", "qwen3", "gpt_neox", "gemma"))
def test_half_precision_is_rounding(name, tmp_path):
    ids, logits = stored.expected(name)
    full = stored.load(name, tmp_path / "full")
    for dtype, size in ROUNDOFF.items():
        half = stored.load(name, tmp_path / dtype, dtype=dtype)
        streams, caches = stored.run(half, ids, np.ones(ids.shape, bool))
        assert_dtype(dtype, half, streams, caches)
        ours = stored.read_out(half.decoder, half.params, streams[-1])
        assert ours.dtype == jnp.float32
        assert (ours != ours.astype(dtype)).any(), "logits were rounded"
        error, most = stored.difference(ours, logits), bound(full, ids, logits, size)
        assert error <= most, f"{dtype}: {error:.1e}, at most {most:.1e}"
        print(f"{name} {dtype}: {error:.1e} of {most:.1e}")
