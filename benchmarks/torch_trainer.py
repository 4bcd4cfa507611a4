"""What a user would write instead: the same training step in plain eager PyTorch."""

import statistics
import time

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


def step_seconds(
    *, dim, num_points, width, num_layers, num_heads, batch_size, steps: int
) -> float:
    """Median wall time of a step in float32 with Adam, data made on the device."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = GPT2(dim, 2 * num_points, width, num_layers, num_heads).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)

    def step():
        X = torch.randn(batch_size, num_points, dim, device=device)
        w = torch.randn(batch_size, dim, 1, device=device)
        y = (X @ w)[..., 0]
        optimizer.zero_grad()
        loss = (model(X, y) - y).square().mean()
        loss.backward()
        optimizer.step()
        if device == "cuda":
            torch.cuda.synchronize()

    for _ in range(5):
        step()
    times = []
    for _ in range(steps):
        start = time.perf_counter()
        step()
        times.append(time.perf_counter() - start)
    return statistics.median(times)
