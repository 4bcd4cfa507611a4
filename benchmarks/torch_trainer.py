"""The same training step in eager PyTorch, the usual alternative."""

from typing import Any

import numpy as np
import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, width: int, num_heads: int):
        super().__init__()
        self.num_heads = num_heads
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, h):
        batch, tokens, width = h.shape
        qkv = self.qkv(self.ln_1(h)).view(batch, tokens, 3, self.num_heads, -1)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        h = h + self.out(mixed.transpose(1, 2).reshape(batch, tokens, width))
        wide = nn.functional.gelu(self.up(self.ln_2(h)), approximate="tanh")
        return h + self.down(wide)


class GPT2(nn.Module):
    def __init__(self, dim, num_positions, width, num_layers, num_heads):
        super().__init__()
        self.read_in, self.read_out = nn.Linear(dim, width), nn.Linear(width, 1)
        self.positions = nn.Parameter(0.02 * torch.randn(num_positions, width))
        self.blocks = nn.ModuleList(Block(width, num_heads) for _ in range(num_layers))
        self.ln_f = nn.LayerNorm(width)

    def forward(self, X, y):
        batch, points, dim = X.shape
        labels = torch.zeros_like(X)
        labels[:, :, 0] = y
        tokens = torch.stack([X, labels], dim=2).view(batch, 2 * points, dim)
        h = self.read_in(tokens) + self.positions[: 2 * points]
        for block in self.blocks:
            h = block(h)
        return self.read_out(self.ln_f(h))[:, ::2, 0]


class Trainer:
    """Trains in float32 with Adam on prompts generated on the device."""

    def __init__(self, *, dim, num_points, width, num_layers, num_heads, batch_size):
        self.shape = (batch_size, num_points, dim)
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        model = GPT2(dim, 2 * num_points, width, num_layers, num_heads)
        self.model = model.to(self.device)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-4)

    def prompts(self):
        """Draws a batch of linear-regression prompts."""
        X = torch.randn(self.shape, device=self.device)
        w = torch.randn(self.shape[0], self.shape[2], 1, device=self.device)
        return X, (X @ w)[..., 0]

    def step(self) -> None:
        """Takes one training step."""
        X, y = self.prompts()
        self.optimizer.zero_grad()
        (self.model(X, y) - y).square().mean().backward()
        self.optimizer.step()
        if self.device == "cuda":
            torch.cuda.synchronize()

    def gradient(self, X, y) -> float:
        """Returns the loss of a batch and leaves its gradient in the parameters."""
        X, y = (torch.tensor(a, device=self.device) for a in (X, y))
        self.optimizer.zero_grad()
        loss = (self.model(X, y) - y).square().mean()
        loss.backward()
        return loss.item()

    def parameters(self, num_positions: int, gradients: bool = False) -> dict[str, Any]:
        """Returns weights or gradients in the names and shapes of the Flax model."""

        def array(tensor) -> np.ndarray:
            return (tensor.grad if gradients else tensor).detach().cpu().numpy()

        def linear(layer):
            return {"kernel": array(layer.weight).T, "bias": array(layer.bias)}

        def norm(layer):
            return {"scale": array(layer.weight), "bias": array(layer.bias)}

        model = self.model
        table = array(model.positions)
        found: dict[str, Any] = {
            "read_in": linear(model.read_in),
            "read_out_head": linear(model.read_out),
            "ln_f": norm(model.ln_f),
            "positions": np.pad(table, ((0, num_positions - len(table)), (0, 0))),
        }
        for index, block in enumerate(model.blocks):
            found[f"block_{index}"] = {
                "ln_1": norm(block.ln_1),
                "ln_2": norm(block.ln_2),
                "attn_qkv": linear(block.qkv),
                "attn_out": linear(block.out),
                "mlp_in": linear(block.up),
                "mlp_out": linear(block.down),
            }
        return found
