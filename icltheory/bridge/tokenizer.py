"""Converts text to tokens and back, with a checkpoint's ``tokenizer.json``."""

import functools
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from icltheory.bridge._config import read_json

__all__ = ["Tokenizer"]

_FILE = "tokenizer.json"


class Tokenizer:
    """The tokenizer of a checkpoint, loaded when it is first used.

    Args:
        folder: The checkpoint's folder.
        config: Its ``config.json``, for the numbers of special tokens that the
            tokenizer's own files leave out.

    Raises:
        FileNotFoundError: If the folder has no ``tokenizer.json``.

    Example:
        >>> import tempfile
        >>> Tokenizer(tempfile.mkdtemp())  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        FileNotFoundError: ...: expected a tokenizer.json, found none

    References:
        Verified by ``tests/bridge/test_model.py``.
    """

    def __init__(self, folder: str | os.PathLike, config: dict[str, Any] | None = None):
        self.folder = Path(folder)
        self._config = config or {}
        if not (self.folder / _FILE).is_file():
            raise FileNotFoundError(f"{self.folder}: expected a {_FILE}, found none")

    def encode(self, text: str, special: bool = True) -> list[int]:
        """Returns the tokens of a text.

        Args:
            text: The text.
            special: Whether to add what the checkpoint says stands around a text: for
                most a token for the beginning, for GPT-2 and GPT-J nothing.

        Returns:
            Their numbers.
        """
        return self._backend.encode(text, add_special_tokens=special).ids

    def decode(self, ids: Iterable[Any]) -> str:
        """Returns the text of tokens, without special ones.

        Args:
            ids: Their numbers.

        Returns:
            The text.
        """
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

    @functools.cached_property
    def _backend(self) -> Any:
        try:
            import tokenizers
        except ImportError:
            raise ImportError("tokenizers need `pip install icltheory[llm]`") from None
        path = self.folder / _FILE
        try:
            backend = tokenizers.Tokenizer.from_file(str(path))
        except Exception as error:  # the library raises nothing more specific
            raise ValueError(f"{path}: expected a tokenizer, got {error}") from error
        # A prompt that is too long must raise an error and not be truncated.
        backend.no_truncation()
        backend.no_padding()
        return backend

    def _special(self, name):
        for file in ("tokenizer_config.json", "special_tokens_map.json"):
            path = self.folder / file
            token = read_json(path).get(name) if path.is_file() else None
            token = token.get("content") if isinstance(token, dict) else token
            if token is not None:
                return self._backend.token_to_id(token)
        number = self._config.get(f"{name}_id")
        return number[0] if isinstance(number, list) else number
