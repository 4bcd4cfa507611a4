"""A language model: weights, tokenizer and config in one object."""

import dataclasses
import functools
import hashlib
import weakref
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Integer

from icltheory._checks import check_shape, concrete
from icltheory._typing import Array, Bool, Float, PyTree
from icltheory.bridge.architecture import Architecture
from icltheory.bridge.decoder import KV, Decoder, Stream, Tokens, block, embed
from icltheory.bridge.sharding import replicated


@dataclasses.dataclass(init=False, repr=False, eq=False, frozen=True)
class LanguageModel(Decoder):
    """A decoder with its parameters, tokenizer and config, which is never edited.

    It is compared and hashed by identity; inside ``jit`` pass :attr:`decoder` as the
    static argument and :attr:`params` as the arrays.

    Args:
        config: The checkpoint's ``config.json``.
        source: Where it came from, for messages and records.

    Example:
        >>> import jax
        >>> arch = Architecture(family="gpt2", vocab_size=50, width=8, num_layers=2,
        ...     num_heads=2, num_kv_heads=2, head_dim=4, mlp_width=32, max_positions=16)
        >>> decoder = Decoder(arch)
        >>> model = LanguageModel(decoder, decoder.init(jax.random.key(0)))
        >>> model.logits(np.array([[1, 2, 3]])).shape
        (1, 3, 50)
    """

    decoder: Decoder
    params: PyTree
    config: dict[str, Any]
    source: str
    _tokenizer: Any

    __eq__, __hash__ = object.__eq__, object.__hash__

    def __init__(
        self,
        decoder: Decoder,
        params: PyTree,
        tokenizer: Any = None,
        config: Mapping[str, Any] | None = None,
        source: str = "",
    ):
        own = {"arch": decoder.arch, "decoder": decoder, "params": params}
        own |= {"config": dict(config or {}), "source": str(source)}
        vars(self).update(own, _tokenizer=tokenizer)

    def __repr__(self) -> str:
        a = self.arch
        return f"LanguageModel({a.family}, {a.num_layers} layers, {self.source!r})"

    def replace(self, **changes: Any) -> "LanguageModel":
        """Returns the model with some parts replaced, such as ``params``."""
        names = ("decoder", "params", "config", "source")
        old = {name: getattr(self, name) for name in names}
        return LanguageModel(**{"tokenizer": self._tokenizer, **old, **changes})

    @property
    def tokenizer(self) -> Any:
        """The tokenizer; raises if the checkpoint has none."""
        if self._tokenizer is None:
            raise FileNotFoundError(
                f"{self.source or 'this model'}: expected a tokenizer.json, found none"
            )
        return self._tokenizer

    @property
    def context_length(self) -> int:
        """Longest sequence: ``max_positions``, times the factor of dynamic scaling."""
        return self.arch.context_length

    @property
    def vocab_size(self) -> int:
        """Number of rows of the embedding table."""
        return self.arch.vocab_size

    def logits(
        self,
        token_ids: Integer[ArrayLike, "..."],
        mask: Bool[ArrayLike, "..."] | Integer[ArrayLike, "..."] | None = None,
    ) -> Float[Array, "B T vocab"]:
        """Logits of the next token at every position, in float32.

        One compiled program per kind of block and shape, shared by its layers. The rows
        ``(B, T)`` are padded on either side, and ``mask`` says where there is a token;
        what stands at padding has no meaning. Where rotary frequencies follow the
        length (``Rotary.switch``), the longest row decides those of all rows: give rows
        beyond the switch one at a time.
        """
        stream, _ = through(self, _tokens(self.arch, token_ids, mask))
        return _read_out(self.decoder, ends_of(self), stream)


def through(
    model: LanguageModel, tokens: Tokens, keep: Callable[[KV], Any] = lambda cache: None
) -> tuple[Stream, list[Any]]:
    """The stream behind all layers, and what is kept of their keys and values."""
    stream = embed(model.decoder, model.params["embed"], tokens, np.int32(0))
    kept = []
    for number, layer in enumerate(model.params["layers"]):
        own = model.decoder.of_layer(number)
        stream, cache = block(own, False, layer, stream, None)
        kept.append(keep(cache))
    return stream, kept


def ends_of(model: LanguageModel) -> dict[str, PyTree]:
    """The parameters outside of the layers."""
    return {name: leaf for name, leaf in model.params.items() if name != "layers"}


def weights_digest(model: LanguageModel) -> str:
    """Digest of the architecture and of every bit of the weights."""
    digest = hashlib.sha256(repr(model.arch).encode())
    for leaf in jax.tree.leaves(model.params):
        whole = np.ascontiguousarray(replicated(leaf))
        digest.update(whole.reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


# Models whose weights are known to be finite.
_FINITE: weakref.WeakSet[LanguageModel] = weakref.WeakSet()


def trust_weights(model: LanguageModel) -> None:
    """Records that all weights of a model were found finite."""
    _FINITE.add(model)


def check_weights(model: LanguageModel, *, tokens: bool = True) -> None:
    """Raises if a weight is NaN or infinite; each model is checked once.

    Without ``tokens`` a row of the token table may be NaN: only the prompts that have
    the token meet it.
    """
    if model in _FINITE:
        return
    params = dict(model.params)
    if not tokens:
        params["embed"] = {k: v for k, v in params["embed"].items() if k != "tokens"}
    counts = jax.device_get(_count_wrong(params))
    for path, count in jax.tree_util.tree_leaves_with_path(counts):
        if count:
            got = f"{count} NaN or infinite ones in params{jax.tree_util.keystr(path)}"
            raise ValueError(f"model: expected finite weights, got {got}")
    if tokens:
        trust_weights(model)


@jax.jit
def _count_wrong(params):
    return jax.tree.map(lambda leaf: jnp.sum(~jnp.isfinite(leaf)), params)


@functools.partial(jax.jit, static_argnums=0)
def _read_out(decoder, ends, stream):
    return decoder.read_out(ends, stream)


def _tokens(arch: Architecture, token_ids: Any, mask: Any) -> Tokens:
    """Returns checked tokens on the device; traced values are not checked."""
    check_shape("token_ids", token_ids, ("B", "T"))
    if not np.size(token_ids):
        shape = np.shape(token_ids)
        raise ValueError(f"token_ids: expected at least one token, got shape {shape}")
    mask = np.ones(np.shape(token_ids), bool) if mask is None else mask
    check_shape("mask", mask, np.shape(token_ids))
    ids, known = concrete(token_ids), concrete(mask)
    if ids is not None and not 0 <= ids.min() <= ids.max() < arch.vocab_size:
        wrong = ids.min() if ids.min() < 0 else ids.max()
        raise ValueError(f"token_ids: expected 0 to {arch.vocab_size - 1}, got {wrong}")
    longest = 0 if known is None else int(known.astype(bool).sum(1).max(initial=0))
    if longest > (most := arch.context_length):
        raise ValueError(f"token_ids: expected at most {most} tokens, got {longest}")
    return Tokens(jnp.asarray(token_ids), jnp.asarray(mask).astype(bool))
