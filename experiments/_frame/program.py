"""Runs an experiment as a program: one-line error messages, and exit statuses."""

import contextlib
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from experiments._frame import interrupts

# Command that continues the run started by this process.
_continuing: list[str] = []


def continue_with(command: str) -> None:
    """Sets the command that is printed when the program is interrupted."""
    _continuing[:] = [command]


def run_program(main: Callable[[], Any]) -> None:
    """Runs ``main`` and exits: 0, 1 for a failed check, 2 for an error, 130 for Ctrl-C.

    User errors are one line. An interrupt prints the command that continues the run;
    by signal n the status is 128 + n. With the variable ``ICLTHEORY_TRACEBACK`` both
    are raised instead.

    Args:
        main: Returns what it wrote to ``result.json``, or an exit status.
    """
    _continuing.clear()
    with interrupts.handled(interrupts.stop):
        try:
            result = _without_errors(main)
        except KeyboardInterrupt as interrupt:
            if os.environ.get("ICLTHEORY_TRACEBACK"):
                raise
            interrupts.ignore()
            number = signal.Signals((*interrupt.args, signal.SIGINT)[0])
            by = "" if number == signal.SIGINT else f" by {number.name}"
            # Who reads the first lines of a help page alone needs no advice.
            if _continuing or number != signal.SIGPIPE:
                _say(f"interrupted{by}; {_advice()}")
            sys.exit(128 + number)
    if isinstance(result, dict):
        result = int(result.get("verdict") == "failed")
    if result:
        sys.exit(result)


def _without_errors(main: Callable[[], Any]) -> Any:
    try:
        return main()
    except (ValueError, OSError, FloatingPointError) as error:
        if os.environ.get("ICLTHEORY_TRACEBACK"):
            raise
        told = " ".join(str(error).split())
        # A full disk can be emptied, and a run continued.
        again = isinstance(error, OSError) and _continuing
        _say(f"error: {told}; {_advice()}" if again else f"error: {told}")
        sys.exit(2)
    except (AssertionError, RuntimeError):
        require_platform()
        raise


def require_platform() -> None:
    """Exits with status 2 and one line if JAX finds none of its platforms here."""
    import jax

    try:
        jax.devices()
    except (AssertionError, RuntimeError) as error:
        asked = jax.config.jax_platforms  # pyrefly: ignore[missing-attribute]
        why = " ".join(f"({error})".split()) if str(error) else ""
        _say(
            "error: JAX_PLATFORMS: expected a platform of this machine, "
            f"got {asked!r} {why}".rstrip()
        )
        sys.exit(2)


def _advice() -> str:
    return f"to continue: {_continuing[0]}" if _continuing else "no run was begun"


def _say(line: str) -> None:
    with contextlib.suppress(OSError):  # nobody reads it
        print(line, file=sys.stderr)
