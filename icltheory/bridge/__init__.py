"""Real language models in the layered protocol: checkpoints, tasks, Algorithm 1."""

from icltheory.bridge.architecture import Architecture, Rotary
from icltheory.bridge.checkpoint import load_checkpoint
from icltheory.bridge.decoder import KV, Decoder, Stream, Tokens
from icltheory.bridge.model import LanguageModel, clip_module
from icltheory.bridge.tokenizer import Tokenizer

__all__ = [
    "KV",
    "Architecture",
    "Decoder",
    "LanguageModel",
    "Rotary",
    "Stream",
    "Tokenizer",
    "Tokens",
    "clip_module",
    "load_checkpoint",
]
