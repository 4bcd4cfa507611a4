"""Writes ``flax_model.msgpack`` beside some fixtures, with the Flax classes themselves.

    python tests/bridge/make_flax_fixtures.py

Needs ``transformers>=4.57.6,<5``, the last with Flax classes, and no torch. Run it
after ``make_fixtures.py``; it says how far those classes are from the stored logits.
"""

import pathlib
import shutil
import tempfile

import jax.numpy as jnp
import numpy as np
import transformers
from fixture_models import FIXTURES, STORED

CLASSES = {
    "gptj": "FlaxGPTJForCausalLM",
    "gpt2": "FlaxGPT2LMHeadModel",
    "llama": "FlaxLlamaForCausalLM",
}


def write(name):
    """Converts one fixture; both files hold the same numbers in the same dtype."""
    source = FIXTURES / name
    with tempfile.TemporaryDirectory() as scratch:
        scratch = pathlib.Path(scratch)
        shutil.copy(source / "config_old.json", scratch / "config.json")
        shutil.copy(source / "model.safetensors", scratch)
        model = getattr(transformers, CLASSES[name]).from_pretrained(scratch)
        model.save_pretrained(scratch / "flax")
        shutil.copy(scratch / "flax" / "flax_model.msgpack", source)
    stored = np.load(source / "expected.npz")
    logits = model(jnp.asarray(stored["ids"], jnp.int32)).logits[:, STORED]
    print(f"{name}: {np.abs(logits - stored['logits']).max():.1e} from torch")


if __name__ == "__main__":
    for chosen in CLASSES:
        write(chosen)
