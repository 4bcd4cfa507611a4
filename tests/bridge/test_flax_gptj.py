"""GPT-J against Hugging Face's own Flax classes, where they are installed.

They ended with transformers 4.57.6, which holds other packages back, so this is an
optional job: ``pip install "transformers>=4.57.6,<5"`` beside the library.
"""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.bridge import stored
from tests.bridge.fixture_models import LENGTHS

CLOSE = {"atol": 1e-5, "rtol": 0}


@pytest.fixture(scope="module")
def theirs(tmp_path_factory):
    """The Flax class on the fixture, with the strict settings of these tests off."""
    reason = "needs transformers>=4.57.6,<5: its Flax classes were removed in 5"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        transformers = pytest.importorskip("transformers", reason=reason)
        if not hasattr(transformers, "FlaxGPTJForCausalLM"):
            pytest.skip(reason)
        folder = tmp_path_factory.mktemp("gptj")
        stored.checkpoint("gptj", folder, "config_old", "flax_model.msgpack")
        model = transformers.FlaxGPTJForCausalLM.from_pretrained(folder)

    def run(ids, mask):
        places = np.clip(np.cumsum(mask, axis=1) - 1, 0, None)
        with jax.numpy_rank_promotion("allow"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return model(
                jnp.asarray(ids, jnp.int32),
                attention_mask=jnp.asarray(mask, jnp.int32),
                position_ids=jnp.asarray(places, jnp.int32),
                output_hidden_states=True,
            )

    return run


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("weights", ["model.safetensors", "flax_model.msgpack"])
def test_logits_and_every_hidden_state(weights, padded, theirs, tmp_path):
    from icltheory.bridge.checkpoint import load_checkpoint

    model = load_checkpoint(stored.checkpoint("gptj", tmp_path, weights=weights))
    rows, _ = stored.expected("gptj")
    ids, mask = stored.pad(rows, "left", LENGTHS if padded else (rows.shape[1],) * 3)
    other = theirs(ids, mask)
    ours, _ = stored.run(model, ids, mask)
    # Theirs ends with the state behind the final norm, which ours has in the head.
    for stream, hidden in zip(ours[:-1], other.hidden_states[:-1], strict=True):
        np.testing.assert_allclose(stream.h[mask], hidden[mask], **CLOSE)
    logits = model.logits(ids, mask)
    error = np.abs(logits[mask] - other.logits[mask]).max()
    print(f"{weights}, padded {padded}: {error:.1e}")
    assert error < CLOSE["atol"]
