"""Interventions: which matrices are clipped, and how strongly."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from icltheory._checks import check_nonnegative_int, check_sequence
from icltheory._names import PruningMethod, Rule
from icltheory._typing import PyTree
from icltheory.layered import LayeredModel, MatrixSpec
from icltheory.pruning.modules import Cutting, module_matrices
from icltheory.pruning.rates import Rank, read_rate, strength_of

__all__ = ["Intervention", "prune_modules"]

_FORMS = (
    "LAYER:MATRICES:STRENGTH such as 26:mlp:0.9 or 3:W_Q,W_K:rank=8, or "
    "MATRICES:STRENGTH outside of the layers such as head:rank=16"
)


@dataclass(frozen=True)
class Intervention:
    r"""Clipping of some matrices of one layer at a rate or to a rank.

    As text it is ``LAYER:MATRICES:STRENGTH``: ``26:mlp:0.9`` clips the MLP of layer 26
    at rate 0.9, ``3:W_Q,W_K:rank=8`` two matrices of layer 3 to rank 8. Outside of the
    layers there is no layer: ``embeddings:0.5``, ``head:rank=16``. ``str()`` gives the
    text and :meth:`parse` reads it. Either ``rate`` or ``rank`` is given.

    Example:
        >>> Intervention.parse("3:W_Q,W_K:rank=8")
        Intervention(layer=3, matrices=('W_Q', 'W_K'), rate=None, rank=8)
        >>> str(Intervention(26, ("mlp",), rate=0.9))
        '26:mlp:0.9'

    Source: Sharma et al. (2023), "LASER", section 4: layer, matrix and rank.
    """

    layer: int | None
    matrices: tuple[str, ...] | str
    rate: Any = None
    rank: int | None = None

    def __post_init__(self):
        if self.layer is not None:
            check_nonnegative_int("layer", self.layer)
        names = self.matrices
        names = tuple(names.split(",") if isinstance(names, str) else names)
        if not names or not all(isinstance(name, str) and name for name in names):
            raise ValueError(f"matrices: expected names, got {self.matrices!r}")
        object.__setattr__(self, "matrices", names)
        strength_of(self.rate, self.rank)
        if self.rate is not None:
            object.__setattr__(self, "rate", read_rate(self.rate))

    @classmethod
    def parse(cls, text: str) -> "Intervention":
        """Parses ``LAYER:MATRICES:STRENGTH`` or ``MATRICES:STRENGTH``."""
        parts = text.split(":") if isinstance(text, str) else []
        why = ""
        if len(parts) in (2, 3):
            *layers, names, strength = parts
            try:
                for layer in layers:
                    if not layer.isdecimal():
                        got = f"got {layer!r}"
                        raise ValueError(f"layer: expected a number >= 0, {got}")
                number = int(layers[0]) if layers else None
                return cls(number, tuple(names.split(",")), **_strength(strength))
            except ValueError as error:
                why = f" ({error})"
        raise ValueError(f"intervention: expected {_FORMS}, got {text!r}{why}")

    @property
    def module(self) -> str:
        """Names of the matrices joined by commas, for :func:`module_matrices`."""
        return ",".join(self.matrices)

    @property
    def strength(self) -> Any:
        """The rate or the rank."""
        return strength_of(self.rate, self.rank)

    def specs(self, model: LayeredModel) -> tuple[MatrixSpec, ...]:
        """Where each matrix lives in the parameters of a model."""
        return module_matrices(model, self.layer, self.module)

    def __str__(self) -> str:
        layer = [] if self.layer is None else [str(self.layer)]
        strength = self.strength
        if not isinstance(strength, Rank):
            strength = repr(strength).removesuffix(".0")
        return ":".join((*layer, self.module, str(strength)))


def _strength(text: str) -> dict[str, Any]:
    name, _, value = text.rpartition("=")
    try:
        if name == "rank":
            return {"rank": int(value)}
        if name in ("", "rate"):
            return {"rate": float(value)}
    except ValueError:
        pass
    raise ValueError(
        f"strength: expected a rate, or rank= and a whole number, got {text!r}"
    )


def read_interventions(
    model: LayeredModel, interventions: Sequence[Intervention | str]
) -> tuple[Intervention, ...]:
    """Parses the interventions of a model; raises if two change the same matrix."""
    check_sequence("interventions", interventions)
    read = tuple(
        Intervention.parse(one) if isinstance(one, str) else one
        for one in interventions
    )
    taken: dict[Any, Intervention] = {}
    for one in read:
        if not isinstance(one, Intervention):
            raise ValueError(f"interventions: expected {_FORMS}, got {one!r}")
        for spec in one.specs(model):
            other = taken.setdefault((spec.path, spec.rows), one)
            if other is not one:
                raise ValueError(
                    f"interventions: expected each matrix once, got {spec.name} in "
                    f"{other} and {one}"
                )
    return read


def prune_modules(
    model: LayeredModel,
    params: PyTree,
    interventions: Sequence[Intervention | str],
    *,
    rule: Rule = "floor",
    at_least_one: bool = False,
    method: PruningMethod = "svd",
) -> PyTree:
    """Prunes several modules, each at its own rate or to its own rank.

    Interventions are records or their text. No matrix may occur twice, so their order
    plays no part. The other arguments and the result are those of :func:`prune_module`.

    Example:
        >>> import numpy as np
        >>> from icltheory import attention, layered
        >>> stack = attention.LinearAttentionStack(*[np.diag([2.0, 1.0])[None]] * 3)
        >>> model = layered.LayeredStack.of(stack)
        >>> new = prune_modules(model, stack, ["0:W_V:0.5", "0:W_K:rank=2"])
        >>> new.W_V[0].round(6).tolist(), new.W_K[0].tolist()
        ([[2.0, 0.0], [0.0, 0.0]], [[2.0, 0.0], [0.0, 1.0]])

    Source: Yao et al. (2024), Algorithm 1 (Clip); Sharma et al. (2023), compositions.
    """
    cutting = Cutting(method, rule, at_least_one)
    for one in read_interventions(model, interventions):
        place = one.layer, one.module, one.strength
        params = cutting.pruned(model, params, *place)
    return params
