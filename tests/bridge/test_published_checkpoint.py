"""A published checkpoint, in full size, against torch; a nightly job runs it."""

import os
from pathlib import Path

import numpy as np
import pytest

from icltheory import bridge

FOLDER = os.environ.get("ICLTHEORY_CHECKPOINT")
TEXT = (
    "Review: the plot is thin and the jokes are stale. Sentiment: negative\n"
    "Review: a warm film with a wonderful cast. Sentiment:"
)


@pytest.mark.slow
@pytest.mark.skipif(
    FOLDER is None,
    reason="needs a checkpoint in the folder that ICLTHEORY_CHECKPOINT names",
)
def test_logits_of_a_published_checkpoint_are_torchs():
    folder = Path(FOLDER)
    torch = pytest.importorskip("torch", reason="needs torch to compare with")
    transformers = pytest.importorskip("transformers")
    model = bridge.load_checkpoint(folder)
    assert model.tokenizer is not None
    ids = np.asarray(model.tokenizer.encode(TEXT))[None]
    theirs = transformers.AutoModelForCausalLM.from_pretrained(
        folder, torch_dtype=torch.float32
    ).eval()
    with torch.no_grad():
        expected = theirs(torch.as_tensor(ids, dtype=torch.long)).logits.numpy()
    ours = np.asarray(model.logits(ids))
    # In float32 both are some 1e-6 of the largest logit from the exact values.
    np.testing.assert_allclose(ours, expected, atol=3e-5 * np.abs(expected).max())
    assert (ours.argmax(-1) == expected.argmax(-1)).all()
