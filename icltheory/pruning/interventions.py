"""Interventions: which matrices of a model are pruned, and how strongly."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from icltheory._checks import check_nonnegative_int, check_sequence, checked, finite
from icltheory._typing import PyTree
from icltheory.layered import LayeredModel, MatrixSpec, get_matrix, replace_matrix
from icltheory.pruning.methods import LowRank, Method, check_method, kept_table
from icltheory.pruning.modules import module_matrices, tied_to
from icltheory.pruning.rates import Rank, as_strength

_FORMS = (
    "LAYER:MATRICES:STRENGTH such as 26:mlp:0.9 or 3:W_Q,W_K:rank=8, or "
    "MATRICES:STRENGTH outside of the layers such as head:rank=16"
)


@dataclass(frozen=True)
class Intervention:
    r"""Pruning of some matrices of one layer at a rate or to a rank.

    As text it is ``LAYER:MATRICES:STRENGTH``: ``26:mlp:0.9`` prunes the MLP of layer 26
    at rate 0.9, ``3:W_Q,W_K:rank=8`` two matrices of layer 3 to rank 8. Outside of the
    layers there is no layer: ``embeddings:0.5``, ``head:rank=16``. ``str()`` gives the
    text; :meth:`parse`, or the class alone, reads it. A strength is a rate or a
    :class:`Rank`.

    Example:
        >>> Intervention.parse("3:W_Q,W_K:rank=8")
        Intervention(layer=3, matrices=('W_Q', 'W_K'), strength=Rank(value=8))
        >>> str(Intervention(26, "mlp", 0.9))
        '26:mlp:0.9'
        >>> Intervention("26:mlp:0.9") == Intervention(26, "mlp", 0.9)
        True

    Source: Sharma et al. (2023), "LASER", section 4: layer, matrix and rank.
    """

    layer: Any  # a number, None outside of the layers, or the whole text
    matrices: tuple[str, ...] | str = ()
    strength: Any = None

    def __post_init__(self):
        if isinstance(self.layer, str) and self.strength is None:
            read = Intervention.parse(self.layer)
            for name in ("layer", "matrices", "strength"):
                object.__setattr__(self, name, getattr(read, name))
            return
        if self.layer is not None:
            check_nonnegative_int("layer", self.layer)
        names = self.matrices
        names = tuple(names.split(",") if isinstance(names, str) else names)
        if not names or not all(isinstance(name, str) and name for name in names):
            raise ValueError(f"matrices: expected names, got {self.matrices!r}")
        object.__setattr__(self, "matrices", names)
        object.__setattr__(self, "strength", as_strength(self.strength))

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
                return cls(number, tuple(names.split(",")), _strength(strength))
            except ValueError as error:
                why = f" ({error})"
        raise ValueError(f"intervention: expected {_FORMS}, got {text!r}{why}")

    @property
    def module(self) -> str:
        """Names of the matrices joined by commas, for :func:`module_matrices`."""
        return ",".join(self.matrices)

    def specs(self, model: LayeredModel) -> tuple[MatrixSpec, ...]:
        """Where each matrix lives in the parameters of a model."""
        return module_matrices(model, self.layer, self.module)

    def __str__(self) -> str:
        layer, strength = [] if self.layer is None else [str(self.layer)], self.strength
        if not isinstance(strength, Rank):
            strength = repr(strength).removesuffix(".0")
        return ":".join((*layer, self.module, str(strength)))


def _strength(text: str) -> float | Rank:
    name, _, value = text.rpartition("=")
    try:
        number = {"rank": int, "rate": float, "": float}[name](value)
    except (KeyError, ValueError):
        raise ValueError(
            f"strength: expected a rate, or rank= and a whole number, got {text!r}"
        ) from None
    return Rank(int(number)) if name == "rank" else number


def read_interventions(
    model: LayeredModel, interventions: Intervention | str | Sequence[Any]
) -> tuple[Intervention, ...]:
    """Parses the interventions of a model; raises if two change the same matrix."""
    if isinstance(interventions, Intervention | str):
        interventions = [interventions]
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


def prune_model(
    model: LayeredModel,
    params: PyTree,
    interventions: Intervention | str | Sequence[Intervention | str],
    *,
    method: Method = LowRank(),
) -> PyTree:
    r"""Returns parameters with some modules pruned, each at its own strength.

    One intervention or several, as records or their text. At rate 0 every weight is
    unchanged to the bit. No matrix may occur twice, so that the order plays no part.
    :func:`module_matrices` explains layers and names of matrices.

    Example:
        >>> import numpy as np
        >>> from icltheory import attention, layered
        >>> stack = attention.LinearAttentionStack(*[np.diag([2.0, 1.0])[None]] * 3)
        >>> model = layered.LayeredStack.of(stack)
        >>> new = prune_model(model, stack, ["0:W_V:0.5", "0:W_K:rank=2"])
        >>> new.W_V[0].round(6).tolist(), new.W_K[0].tolist()
        ([[2.0, 0.0], [0.0, 0.0]], [[2.0, 0.0], [0.0, 1.0]])

    Source: Yao et al. (2024), Algorithm 1 (Clip); Sharma et al. (2023), compositions.
    """
    check_method(method)
    for one in read_interventions(model, interventions):
        specs, others = one.specs(model), tied_to(model, one.layer, one.module)
        if others:
            raise ValueError(
                f"module: expected a module without tied matrices, got {one.module}, "
                f"whose matrix is tied to {', '.join(others)}"
            )
        kept_table(method, params, specs, [one.strength])
        for spec in specs:
            W = checked(spec.name, get_matrix(params, spec), finite)
            cut = method.cutter(W, (one.layer, spec.name))
            params = replace_matrix(params, spec, cut(one.strength))
    return params
