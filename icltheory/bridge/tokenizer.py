"""Converts text to tokens and back, with the tokenizer's files of a checkpoint."""

import functools
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from icltheory.bridge._tensors import read_json
from icltheory.models._files import refuse_pointer

_FILE = "tokenizer.json"
# In this order transformers numbers special tokens that are new.
_NAMED = ("bos", "eos", "unk", "sep", "pad", "cls", "mask")
_LISTS = ("extra", "additional")
_FLAGS = ("lstrip", "rstrip", "normalized", "single_word", "special")


class Tokenizer:
    """The tokenizer of a checkpoint, loaded when it is first used.

    Tokens that only the files beside ``tokenizer.json`` name are added to its own, in
    the order of transformers: those of ``added_tokens_decoder`` in
    ``tokenizer_config.json``, then the special tokens of that file. Without
    ``added_tokens_decoder`` the first are those of ``added_tokens.json``, and
    ``special_tokens_map.json`` overrides ``tokenizer_config.json``.

    Args:
        folder: The checkpoint's folder.
        config: Its ``config.json``, for the numbers of special tokens that the
            tokenizer's own files leave out.

    Example:
        >>> import tempfile
        >>> Tokenizer(tempfile.mkdtemp())  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        FileNotFoundError: ...: expected a tokenizer.json, found none
    """

    def __init__(self, folder: str | os.PathLike, config: dict[str, Any] | None = None):
        self.folder = Path(folder)
        self._path, self._config = self.folder / _FILE, config or {}
        if not self._path.is_file():
            raise FileNotFoundError(f"{self.folder}: expected a {_FILE}, found none")

    def encode(self, text: str, special: bool = True) -> list[int]:
        """Returns the tokens of a text.

        With ``special`` they include what the checkpoint says stands around a text: for
        most a token for the beginning, for GPT-2 and GPT-J nothing.
        """
        return self._backend.encode(text, add_special_tokens=special).ids

    def decode(self, ids: Iterable[Any]) -> str:
        """Returns the text of tokens, without special ones."""
        return self._backend.decode([int(i) for i in ids])

    @property
    def vocab_size(self) -> int:
        """Number of tokens in the vocabulary."""
        return self._backend.get_vocab_size()

    @property
    def bos_id(self) -> int | None:
        """Token that begins a text, if there is one."""
        return self._special("bos_token")

    @property
    def eos_id(self) -> int | None:
        """Token that ends a text, if there is one."""
        return self._special("eos_token")

    @property
    def eos_ids(self) -> frozenset[int]:
        """Tokens that end a generated text.

        They are those of ``generation_config.json`` or, without this file, of
        ``config.json``, and :attr:`eos_id`.
        """
        known = (self.folder / "generation_config.json").is_file()
        said = self._read("generation_config.json") if known else self._config
        stated = said.get("eos_token_id")
        stated = stated if isinstance(stated, list) else [stated]
        return frozenset(i for i in (*stated, self.eos_id) if i is not None)

    @functools.cached_property
    def _backend(self) -> Any:
        try:
            import tokenizers
        except ImportError:
            raise ImportError("tokenizers need `pip install icltheory[llm]`") from None
        refuse_pointer(self._path)
        try:
            backend = self._load(tokenizers)
        except Exception as error:  # the library raises nothing more specific
            said = str(error).removeprefix(f"{self._path}: ")
            said = f"expected a tokenizer, got {said}"
            raise ValueError(f"{self._path}: {said}") from error
        # A prompt that is too long must raise an error and not be truncated.
        backend.no_truncation()
        backend.no_padding()
        said, tokens = self._files
        new = [t for t in tokens if backend.token_to_id(t["content"]) is None]
        kept = [{n: token[n] for n in token.keys() - {"id"}} for token in tokens]
        backend.add_tokens([tokenizers.AddedToken(**token) for token in kept])
        for token in new:
            number = backend.token_to_id(token["content"])
            if token.get("id", number) != number:
                raise ValueError(
                    f"{self.folder}: expected {token['id']} as the number of the added "
                    f"token {token['content']!r}, got {number}, the next that is free"
                )
        backend.encode_special_tokens = bool(said.get("split_special_tokens"))
        return backend

    def _load(self, library: Any) -> Any:
        return library.Tokenizer.from_str(self._path.read_text("utf-8-sig"))

    @functools.cached_property
    def _files(self) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        """What the other files say, and the tokens they name in the order of adding."""
        config, mapped = self._read("tokenizer_config.json"), {}
        listed = config.get("added_tokens_decoder")
        if listed is None:
            mapped = self._read("special_tokens_map.json")
            listed = {i: t for t, i in self._read("added_tokens.json").items()}
        said = {**config, **mapped}
        lists = [d.get(f"{n}_special_tokens") for d in (config, mapped) for n in _LISTS]
        extra = next(filter(None, lists), ())
        named = {f"{name}_token": None for name in _NAMED} | said
        # Values such as that of add_bos_token are settings.
        values = [token for name, token in named.items() if name.endswith("_token")]
        values = [token for token in values if token not in (None, False, True)]
        try:
            values += extra.values() if isinstance(extra, dict) else extra
            special = [{**_token(value), "special": True} for value in values]
            order = sorted(listed, key=int)
            added = [{**_token(listed[i]), "id": int(i)} for i in order]
            tokens: dict[Any, dict[str, Any]] = {}
            for token in (*added, *special):
                tokens.setdefault(token["content"], token)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            said = f"expected the added tokens of a tokenizer, got {error!r}"
            raise ValueError(f"{self.folder}: {said}") from None
        names = {token["content"] for token in special}
        for token in tokens.values():
            token["special"] = token.get("special", False) or token["content"] in names
        return said, list(tokens.values())

    def _read(self, name: str) -> dict[str, Any]:
        path = self.folder / name
        return read_json(path) if path.is_file() else {}

    def _special(self, name: str) -> int | None:
        said = self._files[0]
        if name in said:
            token = said[name] and _token(said[name])["content"]
            return None if token is None else self._backend.token_to_id(token)
        number = self._config.get(f"{name}_id")
        return number[0] if isinstance(number, list) else number


def _token(value: Any) -> dict[str, Any]:
    """Returns a token's content and flags."""
    if isinstance(value, str):
        return {"content": value}
    return {name: value[name] for name in (*_FLAGS, "content") if name in value}


def read_rows(name: str, rows: Sequence[Any], size: int) -> list[np.ndarray]:
    """Converts each row to an array of integers below ``size``; raises for others."""
    read = []
    for number, row in enumerate(rows):
        array = np.asarray(row)
        if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
            got = f"{array.dtype} of shape {array.shape} in row {number}"
            raise ValueError(f"{name}: expected a sequence of whole numbers, got {got}")
        if array.size and not 0 <= array.min() <= array.max() < size:
            wrong = array.min() if array.min() < 0 else array.max()
            got = f"{wrong} in row {number}"
            raise ValueError(f"{name}: expected tokens 0 to {size - 1}, got {got}")
        read.append(array.astype(np.int32))
    return read
