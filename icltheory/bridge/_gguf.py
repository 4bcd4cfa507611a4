"""Reads a GGUF file as a checkpoint in Hugging Face's names and layout."""

import functools
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from icltheory.bridge.families import entries_of, read_architecture
from icltheory.bridge.families.declare import is_number
from icltheory.bridge.tokenizer import Tokenizer
from icltheory.models._files import refuse_pointer
from icltheory.models._safetensors import Tensor

# Architectures of GGUF, and what Hugging Face calls them.
_MODELS = {n: n for n in ("llama", "qwen2", "qwen3")} | {"gemma3": "gemma3_text"}
_FLOATS = {"F32": np.float32, "F16": np.float16, "BF16": ml_dtypes.bfloat16}
# Pre-tokenizers by the most digits in a word; 0 for the words of GPT-2.
_DIGITS = {"gpt-2": 0, "smollm": 0, "llama-bpe": 3, "qwen2": 1, "deepseek-r1-qwen": 1}
_TEXT, _ORIGINAL = "tokenizer.ggml", "original_max_position_embeddings"
_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,DIGITS}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def find_gguf(path: Path) -> Path | None:
    """Returns the GGUF file of a path: itself, or the only weights of a folder."""
    if path.suffix == ".gguf" and not path.is_dir():
        return path
    found = sorted(path.glob("*.gguf"))
    if not found or any(path.glob("*.safetensors*")) or any(path.glob("*.msgpack*")):
        return None
    if len(found) > 1:
        raise ValueError(f"{path}: expected one GGUF file, got {len(found)}; name one")
    return found[0]


class GGUFFile:
    """The config and the tensors of a GGUF file, which ``gguf`` dequantises one by one.

    Rows of W_Q and W_K, which GGUF reorders for LLaMA, are put in their order again,
    and the one that GGUF adds to the scales of Gemma's norms is subtracted.
    """

    def __init__(self, path: Path):
        if not path.is_file():
            raise FileNotFoundError(f"{path}: expected a file, found none")
        try:
            import gguf
        except ImportError:
            raise ImportError(f"{path}: needs `pip install icltheory[gguf]`") from None
        refuse_pointer(path)
        self.where, self._library = path, gguf
        try:
            reader = gguf.GGUFReader(path)
            if reader.byte_order != "I":
                raise ValueError("numbers in big-endian order")
            self._metadata = {n: field.contents() for n, field in reader.fields.items()}
        except Exception as error:  # the library raises nothing more specific
            wanted = "a whole file that the package gguf reads"
            raise ValueError(f"{path}: expected {wanted}, got {error!r}") from None
        self._tensors = {tensor.name: tensor for tensor in reader.tensors}
        self._model = self._checked("general.architecture", tuple(_MODELS))
        self._checked("split.count", (0, 1, None))  # a model in several files
        self._checked(f"{self._model}.expert_count", (0, None))
        self.config = self._config()
        self.arch = read_architecture(self.config, path)
        kind = gguf.MODEL_ARCH[self._model.upper()]
        table = gguf.get_tensor_name_map(kind, self.arch.num_layers)
        known = {
            table.get_name(entry.name, (".weight", ".bias")): entry.name
            for entry in entries_of(self.arch)
        }
        stored = ((known.get(name, name), t) for name, t in self._tensors.items())
        self.found = {name: self._tensor(name, tensor) for name, tensor in stored}

    def field(self, name: str) -> Any:
        """Returns a value of the metadata, or ``None``."""
        value = self._metadata.get(name)
        # The shortest decimals, since a config has 1e-05 and not 9.99999975e-06.
        return float(str(np.float32(value))) if isinstance(value, float) else value

    def _checked(self, name: str, known: tuple[Any, ...]) -> Any:
        value = self.field(name)
        if value not in known:
            raise self._wrong(name, " or ".join(map(str, known)), value)
        return value

    def _wrong(self, name: str, wanted: str, value: Any) -> ValueError:
        return ValueError(f"{self.where}: {name}: expected {wanted}, got {value!r}")

    def _config(self) -> dict[str, Any]:
        def get(key, *usual):
            value = self.field(name := f"{self._model}.{key}")
            if value is None and usual:
                return usual[0]
            if not is_number(value) or value <= 0:
                raise self._wrong(name, "a number above 0", value)
            return value

        width, heads = get("embedding_length"), get("attention.head_count")
        layers, tensors = get("block_count"), self._tensors
        head_dim = get("attention.key_length", width // heads)
        eos, eot = (self.field(f"{_TEXT}.{n}_token_id") for n in ("eos", "eot"))
        table = tensors.get("token_embd.weight")
        kinds = {t.tensor_type.name for t in tensors.values() if len(t.shape) > 1}
        one = _FLOATS.get(kinds.pop()) if len(kinds) == 1 else None
        config = {
            "model_type": _MODELS[self._model],
            "vocab_size": None if table is None else int(table.shape[-1]),
            "hidden_size": width,
            "intermediate_size": get("feed_forward_length"),
            "num_hidden_layers": layers,
            "num_attention_heads": heads,
            "num_key_value_heads": get("attention.head_count_kv", heads),
            "head_dim": head_dim,
            "max_position_embeddings": get("context_length"),
            "rms_norm_eps": get("attention.layer_norm_rms_epsilon"),
            "rope_theta": get("rope.freq_base", 10000.0),
            "rope_scaling": self._scaling(),
            "partial_rotary_factor": get("rope.dimension_count", head_dim) / head_dim,
            "tie_word_embeddings": "output.weight" not in tensors,
            "attention_bias": "blk.0.attn_q.bias" in tensors,
            "mlp_bias": "blk.0.ffn_gate.bias" in tensors,
            "bos_token_id": self.field(f"{_TEXT}.bos_token_id"),
            "eos_token_id": eos if eot in (None, eos) else [eos, eot],
            "torch_dtype": np.dtype(one or np.float32).name,
        }
        if self._model == "gemma3":
            config |= {
                # Not in the file: the largest model alone divides by another width.
                "query_pre_attn_scalar": width // heads if layers == 62 else head_dim,
                "rope_local_base_freq": get("rope.freq_base_swa", 10000.0),
                "sliding_window": get("attention.sliding_window", None),
                "sliding_window_pattern": get("attention.sliding_window_pattern", 6),
                "attn_logit_softcapping": get("attn_logit_softcapping", None),
                "final_logit_softcapping": get("final_logit_softcapping", None),
            }
        return config

    def _scaling(self) -> dict[str, Any] | None:
        where = f"{self._model}.rope.scaling"
        kind = self._checked(f"{where}.type", ("none", "linear", "yarn", None))
        divisors = self._tensors.pop("rope_freqs.weight", None)
        if divisors is not None:  # of the frequencies, for texts of every length
            listed = np.asarray(divisors.data, np.float32).tolist()
            both = {"short_factor": listed, "long_factor": listed}
            return {"rope_type": "longrope", **both, "attention_factor": 1.0}
        original = self.field(f"{where}.original_context_length")
        numbers = {"factor": self.field(f"{where}.factor"), _ORIGINAL: original}
        return None if kind in (None, "none") else {"rope_type": kind, **numbers}

    def _tensor(self, name: str, stored: Any) -> Tensor:
        shape = tuple(reversed(stored.shape.tolist()))
        dtype = np.dtype(_FLOATS.get(stored.tensor_type.name, np.float32))
        return Tensor(shape, dtype, lambda: self._read(name, stored), file=self.where)

    def _read(self, name: str, stored: Any) -> np.ndarray:
        """Returns a tensor, dequantised."""
        data, kind = stored.data, stored.tensor_type
        known = _FLOATS.get(kind.name)
        try:
            value = data.view(known) if known else self._library.dequantize(data, kind)
        except NotImplementedError as error:
            raise ValueError(f"{self.where}: {name}: {error}") from None
        if self._model == "gemma3" and name.endswith("norm.weight"):
            return np.subtract(value, np.float32(1))
        heads = {"q_proj": self.arch.num_heads, "k_proj": self.arch.num_kv_heads}
        if self._model == "llama" and (part := name.split(".")[-2]) in heads:
            pairs = value.reshape(heads[part], -1, 2, *value.shape[1:])
            return pairs.swapaxes(1, 2).reshape(value.shape)
        return value


class GGUFTokenizer(Tokenizer):
    """The tokenizer in the metadata of a GGUF file, built when it is first used."""

    def __init__(self, file: GGUFFile):
        self.folder = self._path = file.where
        self._config, self._file = file.config, file
        self._said = lambda name: file.field(f"{_TEXT}.{name}")

    @functools.cached_property
    def _files(self) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        kinds, tokens = self._said("token_type") or (), self._said("tokens")
        # 2: unknown, 3: control, 4: given by users and looked for in every text.
        return {}, [
            {"content": tokens[i], "id": i, "special": k < 4, "normalized": False}
            for i, k in enumerate(kinds)
            if k in (2, 3, 4)
        ]

    def _load(self, library: Any) -> Any:
        normal, split = library.normalizers, library.pre_tokenizers
        undo, pre, tokens = library.decoders, self._said("pre"), self._said("tokens")
        vocab = {token: i for i, token in enumerate(tokens)}
        pieces = self._file._checked(f"{_TEXT}.model", ("gpt2", "llama")) == "llama"
        if pieces:  # BPE of SentencePiece
            merges, unknown = self._merges(vocab), self._said("unknown_token_id") or 0
            options = {"byte_fallback": True, "unk_token": tokens[unknown]}
            spaced = self._said("add_space_prefix") is not False
            changes = [*([normal.Prepend("▁")] * spaced), normal.Replace(" ", "▁")]
            splits = []
            steps = [undo.Replace("▁", " "), undo.ByteFallback(), undo.Fuse()]
            steps += [undo.Strip(content=" ", left=1)] * spaced
        else:  # byte-level BPE
            digits = _DIGITS[self._file._checked(f"{_TEXT}.pre", tuple(_DIGITS))]
            merges = [tuple(merge.split(" ")) for merge in self._said("merges")]
            options = {"ignore_merges": digits == 3}
            changes = [normal.NFC()] * (digits == 1)
            words = library.Regex(_WORDS.replace("DIGITS", str(digits)))
            splits = [split.Split(words, behavior="isolated")] * (digits > 0)
            splits += [split.Digits(individual_digits=True)] * (pre == "smollm")
            splits += [split.ByteLevel(add_prefix_space=False, use_regex=digits == 0)]
            steps = [undo.ByteLevel()]
        backend = library.Tokenizer(library.models.BPE(vocab, merges, **options))
        backend.normalizer = normal.Sequence(changes)
        backend.pre_tokenizer = split.Sequence(splits)
        backend.decoder = undo.Sequence(steps)
        begun = self._said("add_bos_token")
        begun = (pieces or pre == "llama-bpe") if begun is None else begun
        ends = (begun, self.bos_id), (self._said("add_eos_token"), self.eos_id)
        front, behind = ([i] if on and i is not None else [] for on, i in ends)
        backend.post_processor = library.processors.TemplateProcessing(
            single=[*(tokens[i] for i in front), "$A", *(tokens[i] for i in behind)],
            special_tokens=[(tokens[i], i) for i in front + behind],
        )
        return backend

    def _merges(self, vocab: dict[str, int]) -> list[tuple[str, str]]:
        """Returns the merges that follow from the scores of pieces."""
        kinds, scores = self._said("token_type"), self._said("scores")
        pairs = [
            (-scores[i], -cut, (piece[:cut], piece[cut:]))
            for piece, i in vocab.items()
            for cut in range(1, len(piece))
            if kinds[i] == 1 and piece[:cut] in vocab and piece[cut:] in vocab
        ]
        return [pair for _, _, pair in sorted(pairs, key=lambda pair: pair[:2])]
