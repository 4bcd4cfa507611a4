"""GPT-2: learned positions, joint query-key-value kernels stored (in, out)."""

from icltheory.bridge._config import Config
from icltheory.bridge.architecture import Architecture
from icltheory.bridge.families._gpt import gpt_sizes
from icltheory.bridge.families.declare import Family, Stored

__all__ = ["GPT2"]


def _architecture(config: Config) -> Architecture:
    config.refuse("scale_attn_weights", unless=True)
    config.refuse("scale_attn_by_inverse_layer_idx", unless=False)
    config.refuse("add_cross_attention", unless=False)
    return Architecture(
        family="gpt2",
        **gpt_sizes(
            config, vocab=50257, positions=1024, width=768, layers=12, heads=12
        ),
        attention_bias=True,
        output_bias=True,
        mlp_bias=True,
        tied=config.flag("tie_word_embeddings", True),
    )


GPT2 = Family(
    name="gpt2",
    architecture=_architecture,
    prefix="transformer.",
    embed="wte",
    positions="wpe",
    final_norm="ln_f",
    head="lm_head",
    layer="h.{}",
    modules=(
        Stored("ln_1", ("norm_1",)),
        Stored("attn.c_attn", ("attn.W_Q", "attn.W_K", "attn.W_V"), transposed=True),
        Stored("attn.c_proj", ("attn.W_O",), transposed=True),
        Stored("ln_2", ("norm_2",)),
        Stored("mlp.c_fc", ("mlp.W_in",), transposed=True),
        Stored("mlp.c_proj", ("mlp.W_out",), transposed=True),
    ),
    skipped=(r"h\.\d+\.attn\.(bias|masked_bias)",),
)
