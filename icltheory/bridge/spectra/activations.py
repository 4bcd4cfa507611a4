"""Clipping that minimises the change of a matrix's outputs on a text."""

import dataclasses
import functools
import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from icltheory._checks import check_positive_int, covariance, nonnegative, scalar
from icltheory.bridge._arrays import replicated
from icltheory.bridge.streams import padded_tokens
from icltheory.bridge.tokenizer import read_rows
from icltheory.linalg import svd
from icltheory.pruning import Method, module_matrices

__all__ = ["ActivationAware", "input_moments"]

Place = tuple[int, str]


def input_moments(
    model: Any,
    rows: Sequence[Sequence[int]],
    *,
    layers: Sequence[int] | None = None,
    module: str = "all",
    batch_size: int = 8,
) -> dict[Place, np.ndarray]:
    r"""Second moments of each matrix's inputs, over the tokens of some rows.

    .. math:: C_{l,m} = \frac1T \sum_{t=1}^T x_t x_t^\top

    with :math:`x_t` the input of matrix m of layer l at token t. One pass through the
    model; of a layer all moments are on the device together. Every expert of a mixture
    is measured on all tokens.

    Args:
        model: The model.
        rows: Tokens of each row, such as a text cut into pieces.
        layers: Numbers of the layers; all if not given.
        module: Which matrices, as ``"mlp"``, ``"attn"``, ``"all"`` or one name.
        batch_size: Most rows that run together; one by one if a row is so long that
            rotary frequencies change, as the longest row of a batch decides them.

    Returns:
        For each layer and name of a matrix ``(m, n)`` the moments ``(n, n)``, in
        float32.

    Example:
        >>> from icltheory.bridge import Architecture, Decoder, LanguageModel
        >>> arch = Architecture(family="gpt2", vocab_size=50, width=8, num_layers=2,
        ...     num_heads=2, num_kv_heads=2, head_dim=4, mlp_width=32, max_positions=16)
        >>> model = LanguageModel(Decoder(arch), Decoder(arch).init(jax.random.key(0)))
        >>> input_moments(model, [[1, 2, 3]], layers=[0])[0, "W_out"].shape
        (32, 32)

    Source: Wang et al. (2024), "SVD-LLM", section 3.1.
    """
    check_positive_int("batch_size", batch_size)
    chosen = range(model.num_layers) if layers is None else sorted(set(layers))
    wanted = {
        layer: tuple(spec.path[2:-1] for spec in module_matrices(model, layer, module))
        for layer in chosen
    }
    read = [row for row in read_rows("rows", rows, model.vocab_size) if len(row)]
    if not read:
        raise ValueError("rows: expected at least one token, got none")
    sums: dict[Place, np.ndarray] = {}
    longest = max(map(len, read))
    if longest > model.context_length:
        raise ValueError(
            f"rows: expected at most {model.context_length} tokens, got {longest}"
        )
    rotary = model.arch.rotary
    if rotary is not None and rotary.switch is not None and longest > rotary.switch:
        batch_size = 1
    for first in range(0, len(read), batch_size):
        tokens = padded_tokens(read[first : first + batch_size], longest)
        stream = _embed(model.decoder, model.params["embed"], tokens)
        for layer in range(max(wanted, default=-1) + 1):
            paths = wanted.get(layer, ())
            block, weights = (
                model.decoder.of_layer(layer),
                model.params["layers"][layer],
            )
            stream, found = _measured(block, paths, weights, stream)
            for path, moment in zip(paths, found, strict=True):
                # The matrices of experts are named expert_3.W_in, those of attention by
                # one word.
                place = (layer, ".".join(map(str, path[1:])))
                sums[place] = sums.get(place, 0) + np.asarray(replicated(moment))
    total = sum(map(len, read))
    return {place: moment / total for place, moment in sums.items()}


@dataclasses.dataclass(frozen=True, eq=False)
class ActivationAware(Method):
    r"""Truncation that minimises the change of the outputs, not of the entries.

    .. math::
        W' = (W S)_r\, S^{-1} , \qquad S S^\top = C + \epsilon
        \frac{\operatorname{tr} C}{n} I , \qquad
        W' = \arg\min_{\operatorname{rank} V \le r} \frac1T \sum_t
        \lVert (W - V) x_t \rVert^2 \quad (\epsilon = 0) ,

    with the second moments C of the inputs and :math:`(\cdot)_r` the truncated
    singular value decomposition. With C = I it is plain truncation. It has the rank,
    and therefore as many parameters, as that. A method for
    :class:`~icltheory.bridge.Evaluator`.

    Args:
        moments: C of each (layer, matrix) that is to be clipped, from
            :func:`input_moments`.
        damping: :math:`\epsilon`, which keeps S invertible where the text has fewer
            tokens than the matrix has inputs.
        label: What the text is called in :attr:`name`, such as ``"demonstrations"``.
            Left out, it is a digest of the moments, whose last bits differ between
            devices; two texts of one label are the caller's care.

    Example:
        >>> method = ActivationAware({(0, "W_Q"): np.diag([1.0, 100.0])}, damping=0)
        >>> W = jnp.diag(jnp.array([3.0, 1.0]))
        >>> cut = method.cutter(W, (0, "W_Q"))
        >>> cut(0.5).round(4).tolist()  # the small entry reads the large input
        [[0.0, 0.0], [0.0, 1.0]]

    Source: Wang et al. (2024), "SVD-LLM: truncation-aware singular value
    decomposition", section 3.1; Eckart and Young (1936) for W S.
    """

    moments: Mapping[Place, Any]
    damping: int | float = 1e-3
    label: str = ""
    __eq__, __hash__ = object.__eq__, object.__hash__  # moments are arrays

    def __post_init__(self):
        super().__post_init__()
        (scalar & nonnegative)("damping", self.damping)
        for place, moment in self.moments.items():
            if np.iscomplexobj(moment):
                raise ValueError(
                    f"moments[{place}]: expected real numbers, got complex"
                )
            covariance(f"moments[{place}]", moment)

    @property
    def name(self) -> str:
        """Name made of the damping and the label or a digest of the moments."""
        if self.label:
            return f"activation-d{self.damping:g}-{self.label}{self._rounding}"
        digest = hashlib.sha256()
        for place in sorted(self.moments):
            digest.update(repr(place).encode())
            digest.update(np.ascontiguousarray(self.moments[place]).tobytes())
        own = f"activation-d{self.damping:g}-{digest.hexdigest()[:12]}"
        return own + self._rounding

    def cutter(self, W, place=None):
        """Returns a function that prunes a matrix at any rate, by one decomposition."""
        S = self._factor(place, W.shape[1])
        wide = W.astype(jnp.promote_types(W.dtype, jnp.float32))
        S = jnp.asarray(S, wide.dtype)
        parts = svd(wide @ S)
        # This is V S^-1, from the triangular system of its transpose.
        right = jax.scipy.linalg.solve_triangular(S.T, parts.Vt.T, lower=False).T

        def cut(strength):
            rank = self.kept(W.shape, strength)
            if rank == min(W.shape):
                return W
            return ((parts.U[:, :rank] * parts.s[None, :rank]) @ right[:rank]).astype(
                W.dtype
            )

        return cut

    def _factor(self, place, n):
        """Returns the lower triangular factor S."""
        if place not in self.moments:
            layer, matrix = place
            raise ValueError(
                f"moments: expected an entry ({layer}, {matrix!r}), got none; "
                "input_moments computes it"
            )
        C = np.asarray(self.moments[place], np.float64)
        if C.shape != (n, n):
            raise ValueError(f"moments: expected shape {(n, n)}, got {C.shape}")
        C = C + self.damping * np.trace(C) / n * np.eye(n)
        try:
            return np.linalg.cholesky(C)
        except np.linalg.LinAlgError:
            layer, matrix = place
            raise ValueError(
                f"moments: expected positive definite moments of {matrix} in layer "
                f"{layer}, got singular ones; increase damping ({self.damping:g})"
            ) from None


@functools.partial(jax.jit, static_argnums=0)
def _embed(decoder, table, tokens):
    return decoder.embed_after({"embed": table}, tokens, 0)


@functools.partial(jax.jit, static_argnums=(0, 1))
def _measured(decoder, paths, layer, stream):
    """Returns the next stream and the summed products of each matrix's inputs."""
    after, inputs = decoder.run_block_inputs(layer, stream)
    mask = stream.mask.reshape(-1)

    def moment(path):
        x = inputs[path].reshape(mask.size, -1).astype(jnp.float32)
        x = jnp.where(mask[:, None], x, 0)  # padding may be NaN
        return jnp.einsum("ti,tj->ij", x, x, precision="highest")

    return after, tuple(moment(path) for path in paths)
