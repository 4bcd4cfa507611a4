"""GPT-J: attention and MLP in parallel after one norm, interleaved rotary pairs."""

from icltheory.bridge._config import Config
from icltheory.bridge.architecture import Architecture
from icltheory.bridge.families._gpt import gpt_sizes
from icltheory.bridge.families.declare import Family, Stored
from icltheory.bridge.rope import read_rotary

__all__ = ["GPTJ"]


def _architecture(config: Config) -> Architecture:
    sizes = gpt_sizes(
        config, vocab=50400, positions=2048, width=4096, layers=28, heads=16
    )
    rotary = read_rotary(
        {},
        config.size("rotary_dim", default=64),
        sizes["max_positions"],
        interleaved=True,
    )
    return Architecture(
        family="gptj",
        **sizes,
        rotary=rotary,
        parallel=True,
        shared_norm=True,
        mlp_bias=True,
        head_bias=True,
        tied=config.flag("tie_word_embeddings", False),
    )


GPTJ = Family(
    name="gptj",
    architecture=_architecture,
    prefix="transformer.",
    embed="wte",
    final_norm="ln_f",
    head="lm_head",
    layer="h.{}",
    modules=(
        Stored("ln_1", ("norm_1",)),
        Stored("attn.q_proj", ("attn.W_Q",)),
        Stored("attn.k_proj", ("attn.W_K",)),
        Stored("attn.v_proj", ("attn.W_V",)),
        Stored("attn.out_proj", ("attn.W_O",)),
        Stored("mlp.fc_in", ("mlp.W_in",)),
        Stored("mlp.fc_out", ("mlp.W_out",)),
    ),
    skipped=(r"h\.\d+\.attn\.(bias|masked_bias|embed_positions)",),
)
