"""Configs of the two models of Yao et al., as in their config.json files."""

from typing import Any

CONFIGS: dict[str, dict[str, Any]] = {
    "gptj": {
        "architectures": ["GPTJForCausalLM"],
        "model_type": "gptj",
        "activation_function": "gelu_new",
        "bos_token_id": 50256,
        "eos_token_id": 50256,
        "layer_norm_epsilon": 1e-5,
        "n_embd": 4096,
        "n_head": 16,
        "n_inner": None,
        "n_layer": 28,
        "n_positions": 2048,
        "rotary": True,
        "rotary_dim": 64,
        "scale_attn_weights": True,
        "tie_word_embeddings": False,
        "tokenizer_class": "GPT2Tokenizer",
        "vocab_size": 50400,
    },
    "llama2": {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "bos_token_id": 1,
        "eos_token_id": 2,
        "hidden_act": "silu",
        "hidden_size": 4096,
        "intermediate_size": 11008,
        "max_position_embeddings": 4096,
        "num_attention_heads": 32,
        "num_hidden_layers": 32,
        "num_key_value_heads": 32,
        "pretraining_tp": 1,
        "rms_norm_eps": 1e-5,
        "rope_scaling": None,
        "tie_word_embeddings": False,
        "torch_dtype": "float16",
        "vocab_size": 32000,
    },
}
