"""Shared by the configs of GPT-2 and GPT-J."""

from typing import Any

from icltheory.bridge._config import Config


def gpt_sizes(
    config: Config, *, vocab: int, positions: int, width: int, layers: int, heads: int
) -> dict[str, Any]:
    """Reads sizes, norm and activation; arguments are the family's defaults."""
    width = config.size("n_embd", "hidden_size", default=width)
    heads = config.size("n_head", "num_attention_heads", default=heads)
    if width % heads:
        raise ValueError(f"n_head: expected a divisor of n_embd {width}, got {heads}")
    names = ("activation_function", "hidden_act")
    return {
        "vocab_size": config.size("vocab_size", default=vocab),
        "width": width,
        "num_layers": config.size("n_layer", "num_hidden_layers", default=layers),
        "num_heads": heads,
        "num_kv_heads": heads,
        "head_dim": width // heads,
        "mlp_width": config.size("n_inner", default=4 * width),
        "max_positions": config.size(
            "n_positions", "max_position_embeddings", default=positions
        ),
        "norm_eps": config.number("layer_norm_epsilon", default=1e-5),
        "activation": config.activation(*names, default="gelu_new"),
    }
