"""Runs an experiment as a program: one-line error messages, and exit statuses."""

import os
import sys
from collections.abc import Callable
from typing import Any

# Command that continues the run started by this process.
_continuing: list[str] = []


def continue_with(command: str) -> None:
    """Sets the command that is printed when the program is interrupted."""
    _continuing[:] = [command]


def run_program(main: Callable[[], Any]) -> None:
    """Runs ``main`` and exits: 0, 1 for a failed check, 2 for an error, 130 for Ctrl-C.

    User errors are one line. An interrupt prints the command that continues the run.
    With the variable ``ICLTHEORY_TRACEBACK`` both are raised instead.

    Args:
        main: Returns what it wrote to ``result.json``, or an exit status.
    """
    _continuing.clear()
    try:
        result = main()
    except KeyboardInterrupt:
        if os.environ.get("ICLTHEORY_TRACEBACK"):
            raise
        print(f"interrupted; {_advice()}", file=sys.stderr)
        sys.exit(130)
    except (ValueError, OSError, FloatingPointError) as error:
        if os.environ.get("ICLTHEORY_TRACEBACK"):
            raise
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        sys.exit(2)
    if isinstance(result, dict):
        result = int(result.get("verdict") == "failed")
    if result:
        sys.exit(result)


def _advice() -> str:
    return f"to continue: {_continuing[0]}" if _continuing else "no run was begun"
