"""``report.html``: one self-contained page with a run's question and results."""

import base64
import html
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from icltheory.strict_json import number

__all__ = ["in_words", "page"]

_STYLE = """
:root { color-scheme: light dark; --line: #8884; --soft: #8882 }
body { font: 16px/1.55 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto;
  padding: 0 1rem }
h1 { font-size: 1.6rem } h2 { font-size: 1.2rem; margin-top: 2.2rem }
table { border-collapse: collapse; font-size: .88rem }
caption { text-align: left; font-weight: 600; padding: .3rem 0 }
th, td { border-bottom: 1px solid var(--line); padding: .25rem .7rem; text-align: left;
  font-variant-numeric: tabular-nums }
.wide { overflow-x: auto; margin: 1rem 0 }
figure { margin: 1.4rem 0 }
img { max-width: 100%; background: #fff; border-radius: 4px }
pre { background: var(--soft); padding: .7rem 1rem; overflow-x: auto }
.passed { color: #009e73 } .failed { color: #d55e00; font-weight: 600 }
"""


def page(folder: Path) -> str:
    """Returns the HTML page of a finished run.

    Args:
        folder: The run's folder, with ``config.json``, ``result.json`` and figures.

    Returns:
        HTML that needs no other file.
    """
    stored, result = (_read(folder / f"{name}.json") for name in ("config", "result"))
    timing = folder / "timing.json"
    seconds = _read(timing)["seconds"] if timing.exists() else {}
    name = stored["experiment"]
    changed = ", changed" if result["verdict"] == "not applicable" else ""
    parts = [
        f"<h1>{_text(name)}, preset {_text(stored['preset'])}{changed}</h1>",
        f"<p>{_text(stored.get('about', ''))}</p>",
        _verdict(result),
        *_checks(result["checks"], result["verdict"] != "not applicable"),
        *_section("Findings", [_list(result.get("findings", ()))]),
        *_section("Claims of the papers", [_claims(result.get("claims", ()))]),
        *_section("Tables", map(_table, result.get("tables", ()))),
        *_section("Figures", map(_figure, sorted(folder.glob("*.png")))),
        *_section("Reproduce", _reproduce(stored, seconds)),
        *_section("Config", [_pairs(_flat(stored["config"]))]),
    ]
    return (
        '<!doctype html>\n<html lang="en">\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{_text(name)}</title>\n<style>{_STYLE}</style>\n"
        + "\n".join(part for part in parts if part)
        + "\n</html>\n"
    )


def in_words(check: Mapping[str, Any]) -> str:
    """Describes one check of ``result.json`` in a sentence."""
    measured, reference, tolerance = (
        f"{number(check[key]):.4g}" for key in ("measured", "reference", "tolerance")
    )
    if check["relation"] == "within":
        expected = f"a distance of at most {tolerance} from {reference}"
    else:
        slack = "" if number(check["tolerance"]) == 0 else f" plus {tolerance}"
        expected = f"at most {reference}{slack}"
    return f"{check['name']}: expected {expected}, measured {measured}."


def _read(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text())


def _text(value: Any) -> str:
    return html.escape(str(value))


def _verdict(result: Mapping[str, Any]) -> str:
    words = {
        "passed": "All checks passed.",
        "failed": "A check failed.",
        "not applicable": "The checks are made for unmodified presets; these numbers "
        "belong to another config.",
    }
    verdict = result["verdict"]
    return f'<p class="{verdict.split()[0]}">{words[verdict]}</p>'


def _checks(checks: Sequence[Mapping[str, Any]], checked: bool) -> list[str]:
    """Lists the checks in words, with passed or failed if they apply to the config."""
    marks = {True: "passed", False: "failed"}
    items = [f"{_text(in_words(check))}</li>" for check in checks]
    if checked:
        verdicts = [marks[check["passed"]] for check in checks]
        items = [
            f'<span class="{verdict}">{verdict}</span> {item}'
            for verdict, item in zip(verdicts, items, strict=True)
        ]
    items = [f"<li>{item}" for item in items]
    return _section("Checks", ["<ul>" + "".join(items) + "</ul>"] if checks else [])


def _section(title: str, parts: Iterable[str]) -> list[str]:
    found = [part for part in parts if part]
    return [f"<h2>{title}</h2>", *found] if found else []


def _list(lines: Sequence[str]) -> str:
    items = "".join(f"<li>{_text(line)}</li>" for line in lines)
    return f"<ul>{items}</ul>" if items else ""


def _claims(claims: Sequence[Mapping[str, Any]]) -> str:
    rows = [
        (one["claim"], one["measured"], "yes" if one["held"] else "no")
        for one in claims
    ]
    return _rows(("claim", "measured", "holds"), rows) if rows else ""


def _table(table: Mapping[str, Any] | str) -> str:
    if isinstance(table, str):
        return f"<p>{_text(table)}</p>"
    return _rows(table["columns"], table["rows"], table["title"], table["caption"])


def _rows(columns, rows, title="", caption="") -> str:
    head = "".join(f"<th>{_text(name)}</th>" for name in columns)
    body = "".join(
        "<tr>" + "".join(f"<td>{_text(cell)}</td>" for cell in row) + "</tr>"
        for row in rows
    )
    above = f"<caption>{_text(title)}</caption>" if title else ""
    below = f"<p>{_text(caption)}</p>" if caption else ""
    table = f"<table>{above}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return f'<div class="wide">{table}</div>{below}'


def _figure(path: Path) -> str:
    data = base64.b64encode(path.read_bytes()).decode()
    name = _text(path.stem.replace("_", " "))
    image = f'<img alt="{name}" src="data:image/png;base64,{data}">'
    return f"<figure>{image}<figcaption>{name}</figcaption></figure>"


def _reproduce(stored: Mapping[str, Any], seconds: Mapping[str, float]) -> list[str]:
    command = stored.get("command")
    facts = dict(stored["environment"])
    facts |= {f"seconds: {name}": f"{value:.1f}" for name, value in seconds.items()}
    shown = f"<pre>{_text(command)}</pre>" if command else ""
    return [shown, _pairs(facts)]


def _pairs(values: Mapping[str, Any]) -> str:
    return _rows(("name", "value"), list(values.items()))


def _flat(values: Mapping[str, Any], at: str = "") -> dict[str, Any]:
    """Flattens nested fields to a dictionary of dotted names."""
    found: dict[str, Any] = {}
    for name, value in values.items():
        inner = isinstance(value, dict)
        found |= _flat(value, f"{at}{name}.") if inner else {f"{at}{name}": value}
    return found
