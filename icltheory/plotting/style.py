"""The common style of all figures: colours, markers and axes."""

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence

# Okabe and Ito's colours, which are distinguishable for colour-blind readers.
COLOURS = ("#000000", "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
_GREY = "#7F7F7F"
# One colour and one marker for each method, in every figure; the markers are for
# readers and printers without colour. The last four are for other families of
# functions than linear ones.
_LOOKS = {
    "transformer": (COLOURS[0], "o"),
    "exact": (COLOURS[0], ""),
    "least squares": (COLOURS[1], "s"),
    "ridge": (COLOURS[2], "D"),
    "Bayes": (COLOURS[2], "D"),
    "averaging": (COLOURS[3], "^"),
    "3-NN": (COLOURS[4], "v"),
    "one-layer optimum": (COLOURS[5], "P"),
    "LSA": (COLOURS[5], "*"),
    "LTB": (COLOURS[3], ">"),
    "dMMSE": (COLOURS[6], "X"),
    "best gradient steps": (COLOURS[6], "p"),
    "lower bound for linear layers": (_GREY, ""),
    "Lasso": (COLOURS[2], "X"),
    "two-layer network": (COLOURS[3], "D"),
    "greedy tree": (COLOURS[6], "^"),
    "greedy tree on signs": (COLOURS[5], "X"),
}
METHODS = {name: colour for name, (colour, _) in _LOOKS.items()}
_MARKERS = {name: marker for name, (_, marker) in _LOOKS.items()}
_SHAPES = ("o", "s", "D", "^", "v", "P", "X")
STYLE = {
    "axes.grid": True,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "figure.constrained_layout.use": True,
    "figure.dpi": 150,
    "font.size": 10,
    "grid.alpha": 0.3,
    "legend.frameon": False,
    "lines.linewidth": 1.8,
}


def colours(first: int = 0) -> Iterator[str]:
    """Cycles through the colours, starting at index ``first``."""
    return itertools.cycle(COLOURS[first:])


def method_colours(names: Iterable[str]) -> dict[str, str]:
    """Assigns colours to methods; those of :data:`METHODS` keep theirs.

    In a name what follows a bracket or a comma does not count, nor does case: ``"ridge
    (1)"`` is ridge. Others get colours that are left, as does the second of two that
    have the same colour, such as ridge and Bayes.

    Example:
        >>> method_colours(["ridge (1)", "mine"])
        {'ridge (1)': '#D55E00', 'mine': '#000000'}

    Source: Okabe and Ito (2008).
    """
    return _assigned(names, METHODS, COLOURS)


def method_markers(names: Iterable[str]) -> dict[str, str]:
    """Assigns markers to methods, as :func:`method_colours` assigns colours.

    That of ``"exact"`` is empty.

    Example:
        >>> method_markers(["ridge (1)", "mine"])
        {'ridge (1)': 'D', 'mine': 'o'}
    """
    return _assigned(names, _MARKERS, _SHAPES)


def _assigned(
    names: Iterable[str], fixed: Mapping[str, str], free: Sequence[str]
) -> dict[str, str]:
    """Assigns fixed values to known methods, and the remaining ones to the others."""
    own = {name.lower(): look for name, look in fixed.items()}
    found: dict[str, str | None] = {}
    kinds: dict[str, str] = {}
    for name in names:
        look, kind = own.get(_plain(name)), _plain(name)
        # The first of two methods that share a look keeps it.
        shared = look and kinds.setdefault(look, kind) != kind
        found[name] = None if shared else look
    taken = set(found.values())
    left = itertools.cycle([look for look in free if look not in taken] or free)
    return {name: next(left) if look is None else look for name, look in found.items()}


def _plain(name: str) -> str:
    return name.partition("(")[0].partition(",")[0].strip().lower()


def plain_log_axis(axis, span: float) -> None:
    """Makes an axis logarithmic, with plain number labels over few decades.

    ``axis`` is ``axes.xaxis`` or ``axes.yaxis``, ``span`` the largest over the smallest
    value on it.
    """
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    getattr(axis.axes, f"set_{axis.axis_name}scale")("log")
    axis.set_minor_formatter(NullFormatter())
    if span <= 1e3:
        subs = (1.0, 2.0, 5.0) if span < 30 else (1.0, 3.0)
        # Within less than a decade, the ticks 1, 2 and 5 might leave one label or none.
        subs = (1.0, 1.2, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0) if span < 5 else subs
        axis.set_major_locator(LogLocator(subs=subs, numticks=12))
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
