"""Formulas of the ledger's rows, for a page in Markdown and for a terminal."""

import html.entities
import re

__all__ = ["markdown", "plain"]

_FORMULA = re.compile(r"\$([^$]+)\$")
_SIGNS = {"lVert": "‖", "rVert": "‖", "lvert": "|", "rvert": "|", "top": "ᵀ"}
_SIGNS |= {"to": "→", "sqrt": "√", "cdot": "·", "dots": "...", "cdots": "..."}
_SIGNS |= {name: name for name in ("max", "min", "exp", "inf")}
_ACCENTS = {"tilde": "\N{COMBINING TILDE}", "bar": "\N{COMBINING MACRON}"}
_RAISED = str.maketrans("0123456789+-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻")


def markdown(text: str) -> str:
    """Escapes what Markdown would read as markup, outside formulas."""
    parts = text.split("$")
    parts[::2] = [re.sub(r"[\\*_<\[~]", r"\\\g<0>", part) for part in parts[::2]]
    return "$".join(parts)


def plain(text: str) -> str:
    r"""Writes the formulas of a text, LaTeX between dollars, with Unicode.

    Example:
        >>> plain(r"at most $\lVert W_{t-1} \rVert_F^2 / \sigma_{\max}$")
        'at most ‖W_(t-1)‖_F² / σ_max'
    """
    return _FORMULA.sub(lambda found: _readable(found[1]), text)


def _readable(formula: str) -> str:
    text = re.sub(r"\\(?:operatorname|text)\{(\w+)\}", r"\1", formula)
    text = re.sub(
        r"\\(tilde|bar) (\w)", lambda found: found[2] + _ACCENTS[found[1]], text
    )
    # Brackets and the sign of a difference stand close to what they belong to.
    text = re.sub(r"\\(Delta|nabla|lVert|lvert|langle|lfloor) ", _sign, text)
    text = re.sub(r"[ ^]\\(rVert|rvert|rangle|rfloor|top)(?![a-z])", _sign, text)
    text = re.sub(r"\\frac(\w)(\w)", r"\1/\2", text)
    text = re.sub(r"\\(?!frac)([A-Za-z]+)", _sign, text)
    text = re.sub(r"([_^])(?:\{([^{}]*)\}|([\w*-]))", _script, text)
    text = re.sub(r"\\frac\{([^{}]*)\}\{([^{}]*)\}", _fraction, text)
    return re.sub(r"\{([^{}]*)\}", r"(\1)", text)


def _sign(found: re.Match[str]) -> str:
    """What stands for a command: mostly its namesake among the signs of HTML."""
    name = found[1]
    return _SIGNS.get(name) or html.entities.html5.get(f"{name};", name)


def _script(found: re.Match[str]) -> str:
    inner = found[2] or found[3]
    if found[1] == "^" and re.fullmatch(r"[-+*\d]+", inner):
        return inner.translate(_RAISED)
    return found[1] + (inner if re.fullmatch(r"\w+|-", inner) else f"({inner})")


def _fraction(found: re.Match[str]) -> str:
    top, below = (part if part.isalnum() else f"({part})" for part in found.groups())
    return f"{top}/{below}"
