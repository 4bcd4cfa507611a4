r"""Implicit updates and the terms of Theorem 2 on a linear surrogate of each layer.

The surrogate keeps the layer's weights and the tokens that enter it, and puts linear
attention in the place of softmax:

.. math:: \Delta W_l = \frac{1}{T \sqrt{d}} \sum_{a} \sum_{p} W_O^a W_V^a x_p \,
    (W_K^a x_p)^\top W_Q^a , \qquad x_p = \operatorname{norm}_1(h_p) .

What it is not: the model. Softmax, its higher orders, rotation by position, biases, the
norms of queries and keys, the causal mask among demonstrations, what the question's own
tokens do, activation and gate of the MLP, and the norm between layers are left out; the
MLPs move the tokens but not W. ``cosine`` measures the distance: between what
the surrogate adds to a question and what attention to the demonstrations really adds.
"""

import math
import os
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from icltheory._checks import (
    check_choice,
    check_finite,
    check_positive_int,
    check_sequence,
)
from icltheory._named_errors import named_errors
from icltheory.batching import Progress, reported
from icltheory.bridge._cutting import cutter_of
from icltheory.bridge.evaluation import tokenize
from icltheory.bridge.evaluation._programs import block
from icltheory.bridge.model import LanguageModel
from icltheory.bridge.streams import Tokens, padded_tokens
from icltheory.bridge.surrogate._layer import (
    Noise,
    attention_factors,
    support_dim,
    through_mlp,
)
from icltheory.bridge.tasks import LanguageTask
from icltheory.layered import get_matrix, replace_matrix
from icltheory.noise import without_replacement_factor
from icltheory.pruning import module_matrices
from icltheory.pruning.modules import Cutting

__all__ = ["SurrogateTerms", "surrogate_terms"]

# Losses in [0, 1], such as errors, are 1/2-sub-Gaussian.
_R = 0.5
_ATTENTION = ("attn", "W_Q", "W_K", "W_V", "W_O")


class SurrogateTerms(NamedTuple):
    r"""Norms and terms of the surrogate of one layer at one rate.

    Attributes:
        layer: Number of the layer, from 0.
        rate: Clipping rate of its module.
        update_norm: :math:`\|\Delta W_l\|_F`.
        G_norm: :math:`\|G_l\|_F`.
        noise_trace: :math:`\operatorname{tr} C_l` of b of the N demonstrations.
        noise_rank: Rank of :math:`C_l`, at most N - 1.
        dim: Dimension m of the space of the gradients, for weights in general position.
        term: T_l of the corrected Theorem 2; infinite while N - 1 < m.
        bound: :math:`R \sqrt{T_l / N}` with R = 1/2, this layer's share alone.
        shrunk_bound: The same with the noise shrunk to a multiple of the identity as
            Ledoit and Wolf do: finite, but the bound of a noisier learner.
        cosine: Mean over questions of the cosine between the surrogate's answer and
            what attention to the demonstrations adds to the last token.
        cosine_error: Its standard error.
        reason: Why the term is infinite.

    References:
        Verified by ``tests/bridge/test_surrogate.py``.
    """

    layer: int
    rate: float
    update_norm: float
    G_norm: float
    noise_trace: float
    noise_rank: int
    dim: int
    term: float
    bound: float
    shrunk_bound: float
    cosine: float
    cosine_error: float
    reason: str


@named_errors
def surrogate_terms(
    model: LanguageModel,
    task: LanguageTask,
    layers: Sequence[int],
    rates: Sequence[Any],
    shots: int | None = None,
    num_queries: int = 32,
    *,
    module: str = "attn",
    split: str = "validation",
    systems: Any = None,
    at_least_one: bool = False,
    progress: Progress | None = None,
) -> list[SurrogateTerms]:
    """Norms of the implicit updates and terms of Theorem 2, layer by layer.

    Args:
        model: The model.
        task: The task; all its demonstrations are the pool of N.
        layers: Numbers of the layers.
        rates: Clipping rates of the module.
        shots: Demonstrations b that the noisy learner of Theorem 2 sees; N // 2 if
            ``None``.
        num_queries: Questions, the first of the split, for the cosine.
        module: What is pruned: ``"attn"``, ``"mlp"``, ``"all"`` or one matrix.
        split: Split that the questions are taken from.
        systems: Keeps singular systems: ``systems.of(W)`` is ``(U, s, Vt)``.
        at_least_one: Whether a rank that rounds to 0 becomes 1 instead of an error.
        progress: Called as ``progress(done, total, part)`` after each layer; see
            :mod:`icltheory.batching`.

    Returns:
        One row for each layer and rate, in ascending order of the layers.

    Raises:
        ValueError: If there are fewer than two demonstrations, a prompt cannot be
            answered, a weight is not finite, a name, a layer or a rate is out of
            range, there is no layer or rate, ``num_queries`` is not positive, the MLP
            of a model with experts is to be pruned, norms stand behind attention, or
            ``systems`` gives fewer singular values than a rate leaves.

    References:
        Yao et al. (2024), Theorems 1 and 2 and Appendix B.3. Verified by
        ``tests/bridge/test_surrogate.py``.
    """
    _check_layers(layers, model.num_layers)
    check_sequence("rates", rates)
    if not len(rates):
        raise ValueError("rates: expected at least one, got none")
    check_positive_int("num_queries", num_queries)
    prompt = _prompt(model, task, split, num_queries)
    N = len(task.demonstrations)
    b = N // 2 if shots is None else shots
    without_replacement_factor(N, b)
    arch = model.arch
    with_mlp = module in ("mlp", "all", "W_in", "W_gate", "W_out")
    if arch.experts is not None and module not in _ATTENTION:
        raise ValueError(
            f"module: expected one of {', '.join(_ATTENTION)} in a model with experts, "
            f"whose MLP depends on the router, got {module!r}"
        )
    if arch.post_norm:
        raise ValueError(
            "model: models with a norm after attention are not supported, got one of "
            f"the family {arch.family}"
        )
    decoder, rows = model.decoder, []
    h = decoder.embed(model.params, prompt.demos)
    q = decoder.embed_after(model.params, prompt.queries, len(prompt.inside))
    with jax.enable_x64(True):
        P = jnp.eye(arch.width)
    for layer in reported(range(max(layers) + 1), progress, "layer {}".format):
        params, own = model.params["layers"][layer], decoder.of_layer(layer)
        for spec in model.matrices(layer):
            check_finite(spec.name, get_matrix(model.params, spec))
        x = np.asarray(decoder.read_in(params, h))[0][prompt.inside]
        x_query = np.asarray(decoder.read_in(params, q))[prompt.ends]
        pruned = _pruned(model, layer, module, rates, systems, at_least_one)
        for rate, weights, ranks in pruned if layer in layers else ():
            added = _added(own, weights, h, q)
            with jax.enable_x64(True):
                factors = attention_factors(arch, weights, x)
                cosines = _cosines(factors, x_query, added)
                factors = through_mlp(factors, weights) if with_mlp else factors
                noise = Noise.of(factors, P, prompt.groups, N, b)
                dim = support_dim(arch, ranks, with_mlp)
                rows.append(_row(layer, float(rate), noise, dim, cosines))
        with jax.enable_x64(True):
            V, U = attention_factors(arch, params, x)
            P = P + V.T @ (U @ P)
        h, keys = block(own, False, params, h, None)
        q, _ = block(own, False, params, q, keys)
    return rows


def _check_layers(layers: Any, num_layers: int) -> None:
    check_sequence("layers", layers)
    if not len(layers):
        raise ValueError("layers: expected at least one, got none")
    for layer in layers:
        check_choice("layers", layer, tuple(range(num_layers)))


class _Prompt(NamedTuple):
    """Demonstrations and questions as tokens.

    Attributes:
        demos: The demonstrations, one row.
        inside: Which of their tokens belong to a demonstration.
        groups: To which one, for those that do.
        queries: Rest of each prompt, padded at the right.
        ends: Row and place of the last token of each question.
    """

    demos: Tokens
    inside: np.ndarray
    groups: np.ndarray
    queries: Tokens
    ends: tuple[np.ndarray, np.ndarray]


def _prompt(model, task, split, num_queries) -> _Prompt:
    prompts = tokenize(model, task, split)
    step = prompts.rows_per_example
    chosen = range(0, min(num_queries * step, len(prompts.rows)), step)
    encode, prefix = model.tokenizer.encode, list(prompts.prefix)
    # Ends of the demonstrations, as far as the tokenizer separates them.
    ends = [
        len(os.path.commonprefix([list(encode(task.prefix(k))), prefix]))
        for k in range(len(task.demonstrations) + 1)
    ]
    groups = np.searchsorted(ends, np.arange(ends[-1]), side="right") - 1
    tails = [
        [*prefix[ends[-1] :], *prompts.rows[i][: prompts.starts[i]]] for i in chosen
    ]
    lengths = np.array([len(tail) for tail in tails])
    demos = np.array([prefix[: ends[-1]]], np.int32)
    return _Prompt(
        Tokens(jnp.asarray(demos), jnp.ones(demos.shape, bool)),
        groups >= 0,
        groups[groups >= 0],
        jax.tree.map(jnp.asarray, padded_tokens(tails, int(lengths.max()))),
        (np.arange(len(tails)), lengths - 1),
    )


def _added(decoder, params, h, q):
    """Contribution of attention to demonstrations, to each question's last token."""
    silent = jax.tree.map(jnp.zeros_like, params["mlp"]["W_out"])
    params = {**params, "mlp": {**params["mlp"], "W_out": silent}}
    keys = block(decoder, False, params, h, None)[1]
    with_demos, alone = (block(decoder, True, params, q, k)[0].h for k in (keys, None))
    return np.asarray(with_demos - alone, np.float64)[:, 0]


def _pruned(
    model, layer, module, rates, systems, at_least_one
) -> Iterator[tuple[Any, Any, dict[str, int]]]:
    """Yields the layer's parameters at each rate, with the rank of each matrix."""
    specs = module_matrices(model, layer, module)
    own = {spec.name: get_matrix(model.params, spec) for spec in model.matrices(layer)}
    full = {name: min(W.shape) for name, W in own.items()}
    cutting = Cutting("svd", "floor", at_least_one)
    kept = cutting.kept_table(model.params, specs, rates)
    cuts = [
        cutter_of(own[spec.name], cutting, systems, sizes, layer, spec.name)
        for spec, *sizes in zip(specs, *kept, strict=True)
    ]
    for rate, sizes in zip(rates, kept, strict=True):
        params, ranks = model.params, dict(full)
        for spec, cut, size in zip(specs, cuts, sizes, strict=True):
            params = replace_matrix(params, spec, cut(size))
            ranks[spec.name] = size
        yield rate, params["layers"][layer], ranks


def _cosines(factors, x, added) -> np.ndarray:
    """Cosines between surrogate and actual contributions, by question."""
    V, U = (np.asarray(factor) for factor in factors)
    guess = (x.astype(np.float64) @ U.T) @ V
    sizes = np.linalg.norm(guess, axis=1) * np.linalg.norm(added, axis=1)
    return np.sum(guess * added, axis=1)[sizes > 0] / sizes[sizes > 0]


def _row(layer, rate, noise: Noise, dim, cosines) -> SurrogateTerms:
    N, num = len(noise.deviations), len(cosines)
    term, rank = noise.term(dim), noise.rank(dim)
    spread = float(cosines.std(ddof=1)) if num > 1 else math.nan
    reason = ""
    if noise.kappa == 0:
        reason = "b = N: the pool leaves no noise"
    elif rank < dim:
        reason = f"rank {rank} (N = {N}) in m = {dim} dimensions"
    return SurrogateTerms(
        layer=layer,
        rate=rate,
        update_norm=noise.update_norm,
        G_norm=noise.G_norm,
        noise_trace=noise.trace,
        noise_rank=rank,
        dim=dim,
        term=term,
        bound=_R * math.sqrt(term / N),
        shrunk_bound=_R * math.sqrt(noise.shrunk_term(dim) / N),
        cosine=float(cosines.mean()) if num else math.nan,
        cosine_error=spread / math.sqrt(max(num, 1)),
        reason=reason,
    )
