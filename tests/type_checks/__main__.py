"""``python -m tests.type_checks``: mypy accepts typical uses, and finds mistakes."""

import re
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).parent


def complaints(name: str) -> dict[int, str]:
    """What mypy says of a file in strict mode, by line."""
    command = [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent"]
    path = str(FOLDER / name)
    done = subprocess.run([*command, path], capture_output=True, text=True)
    found = re.findall(r":(\d+): error: (.*)", done.stdout)
    if done.returncode > 1 or (done.returncode and not found):
        raise SystemExit(f"mypy failed: {done.stdout}{done.stderr}")
    return {int(line): text for line, text in found}


if __name__ == "__main__":
    uses, mistakes = complaints("typical_uses.py"), complaints("mistakes.py")
    lines = (FOLDER / "mistakes.py").read_text().splitlines()
    marked = {n for n, line in enumerate(lines, 1) if line.endswith("# MISTAKE")}
    for line, text in uses.items():
        print(f"typical_uses.py:{line}: {text}")
    for line in sorted(marked - set(mistakes)):
        print(f"mistakes.py:{line}: not found: {lines[line - 1]}")
    if uses or set(mistakes) != marked:
        raise SystemExit(1)
    print(f"typical uses are accepted, {len(marked)} mistakes are found")
