"""Writes ``tests/models/fixtures/garg`` with torch and transformers; tests read it.

    uv run --with torch --with transformers python tests/models/make_garg_fixture.py

A model of Garg's architecture with random weights, norms and biases too, under the
names of the published state dict, with a token table and with the masks that
transformers 4.17 stored. The expected predictions are those of transformers, in
float64.
"""

import pathlib

import numpy as np
import torch
from safetensors.torch import save_file
from transformers import GPT2Config, GPT2Model

FOLDER = pathlib.Path(__file__).parent / "fixtures"
SIZES = {"dim": 3, "num_positions": 12, "width": 8, "num_layers": 2, "num_heads": 2}


def twin(dim, num_positions, width, num_layers, num_heads, seed=0):
    """Linear maps around Hugging Face's GPT-2, with random weights."""
    torch.manual_seed(seed)
    config = GPT2Config(
        vocab_size=5,
        n_positions=num_positions,
        n_embd=width,
        n_layer=num_layers,
        n_head=num_heads,
        use_cache=False,
    )
    model = torch.nn.Module()
    model._read_in = torch.nn.Linear(dim, width)
    model._backbone = GPT2Model(config)
    model._read_out = torch.nn.Linear(width, 1)
    for weight in model.parameters():
        weight.data = 0.4 * torch.randn_like(weight) + (weight.ndim == 1)
    return model.eval()


@torch.no_grad()
def predictions(model, X, y):
    """Predictions at the input tokens, in float64."""
    model = model.double()
    tokens = torch.zeros(len(X), 2 * X.shape[1], X.shape[2], dtype=torch.float64)
    tokens[:, ::2], tokens[:, 1::2, 0] = torch.tensor(X), torch.tensor(y)
    hidden = model._backbone(inputs_embeds=model._read_in(tokens)).last_hidden_state
    return model._read_out(hidden)[:, ::2, 0].numpy()


def state_dict(model, num_positions, num_layers):
    """The tensors of a file, with the masks of old versions."""
    tensors = {k: v.float().clone() for k, v in model.state_dict().items()}
    shape = (1, 1, num_positions, num_positions)
    for layer in range(num_layers):
        attention = f"_backbone.h.{layer}.attn"
        tensors[f"{attention}.bias"] = torch.ones(shape).tril().to(torch.uint8)
        tensors[f"{attention}.masked_bias"] = torch.tensor(-1e4)
    return tensors


if __name__ == "__main__":
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((2, 6, 3)), rng.standard_normal((2, 6))
    model = twin(**SIZES)
    FOLDER.mkdir(exist_ok=True)
    tensors = state_dict(model, SIZES["num_positions"], SIZES["num_layers"])
    save_file(tensors, FOLDER / "garg.safetensors")
    expected = predictions(model, X, y)
    np.savez(FOLDER / "garg.npz", X=X, y=y, expected=expected)
