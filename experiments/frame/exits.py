"""Runs an experiment as a program: signals, one-line errors and exit statuses."""

import contextlib
import os
import select
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

_NAMES = "INT TERM HUP USR1 USR2 XCPU PIPE"
SIGNALS = [getattr(signal, f"SIG{name}") for name in _NAMES.split()]
_continuing: list[str] = []  # the command that continues this process's run


def continue_with(command: str) -> None:
    """Sets the command that is printed when the program is interrupted."""
    _continuing[:] = [command]


def run_program(main: Callable[[], Any]) -> None:
    """Runs ``main`` and exits: 0, 1 for a failed check, 2 for an error, 130 for Ctrl-C.

    After signal n the status is 128 + n. With the variable ``ICLTHEORY_TRACEBACK`` all
    are raised instead. ``main`` returns what it wrote to ``result.json``, or a status.
    """
    _continuing.clear()
    with handled(_stop):
        try:
            result = _result(main)
        except KeyboardInterrupt as interrupt:
            _exit(interrupt)
    if isinstance(result, dict):
        result = int(result.get("verdict") == "failed")
    if result:
        sys.exit(result)


def _result(main: Callable[[], Any]) -> Any:
    # Apart from its caller, which catches a signal that arrives while an error is told.
    try:
        return main()
    except (ValueError, OSError, FloatingPointError) as error:
        _exit(error)
    except (AssertionError, RuntimeError):
        require_platform()
        raise


def _exit(error: BaseException) -> NoReturn:
    if os.environ.get("ICLTHEORY_TRACEBACK"):
        raise error
    line, status = f"error: {' '.join(str(error).split())}", 2
    # A full disk can be emptied, and a run continued.
    advice = f"; to continue: {_continuing[0]}" if _continuing else ""
    if isinstance(error, KeyboardInterrupt):
        for other in SIGNALS[1:]:  # while the program says how to continue
            signal.signal(other, signal.SIG_IGN)
        number = signal.Signals((*error.args, signal.SIGINT)[0])
        by = "" if number == signal.SIGINT else f" by {number.name}"
        line, status = f"interrupted{by}", 128 + number
        advice = advice or "; no run was begun"
    elif not isinstance(error, OSError):
        advice = ""
    # Whoever reads the first lines of a help page alone needs no advice.
    if _continuing or status != 128 + signal.SIGPIPE:
        _say(line + advice)
    sys.exit(status)


def require_platform() -> None:
    """Exits with status 2 and one line if JAX finds none of its platforms here."""
    import jax

    try:
        jax.devices()
    except (AssertionError, RuntimeError) as error:
        asked = jax.config.jax_platforms  # pyrefly: ignore[missing-attribute]
        why = " ".join(f"({error})".split()) if str(error) else ""
        line = "error: JAX_PLATFORMS: expected a platform of this machine, got"
        _say(f"{line} {asked!r} {why}".rstrip())
        sys.exit(2)


def _say(line: str) -> None:
    with contextlib.suppress(OSError):  # nobody reads it
        print(line, file=sys.stderr)


def _stop(number: int) -> None:
    raise KeyboardInterrupt(number)


class Interrupt:
    """Whether the run was asked to stop: ``asked`` is the first signal, or 0."""

    asked = 0


@contextlib.contextmanager
def deferred(announce: Callable[[str], None]) -> Iterator[Interrupt]:
    """Turns the first signal into a flag, which the caller reads when it can stop.

    ``announce`` tells the user that it was noticed. A second Ctrl-C stops at once.
    """
    interrupt = Interrupt()

    def note(number: int) -> None:
        # A scheduler sends a signal to a process and its group, or every second.
        if interrupt.asked and number == signal.SIGINT:
            _stop(number)
        # A closed pipe is noticed while the output is written.
        if not interrupt.asked and number != signal.SIGPIPE:
            announce("stopping after this chunk of steps; Ctrl-C again stops at once")
        interrupt.asked = interrupt.asked or number

    with handled(note):
        yield interrupt


@contextlib.contextmanager
def handled(act: Callable[[int], None]) -> Iterator[None]:
    """Calls ``act`` with each signal that asks the program to stop."""

    def handle(number: int, _: Any) -> None:
        gone = _silence_closed()
        # The pipe may also be a connection to another host.
        if number != signal.SIGPIPE or gone:
            act(number)

    # Python allows only the main thread to handle signals.
    main = threading.current_thread() is threading.main_thread()
    before = {number: signal.getsignal(number) for number in SIGNALS if main}
    if before.get(signal.SIGHUP) is signal.SIG_IGN:  # by nohup
        del before[signal.SIGHUP]
    before = {number: was for number, was in before.items() if was is not None}
    for number in before:
        signal.signal(number, handle)
    try:
        yield
    finally:
        for number, was in before.items():
            signal.signal(number, was)


def _silence_closed() -> bool:
    """Sends output that nobody can read to nowhere, and returns whether there is any.

    Otherwise every later line would be an error, and no checkpoint would be written.
    """
    poll, closed = select.poll(), select.POLLERR | select.POLLHUP
    for descriptor in (1, 2):
        poll.register(descriptor, 0)
    gone = [descriptor for descriptor, event in poll.poll(0) if event & closed]
    for descriptor in gone:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, descriptor)
        os.close(nowhere)
    return bool(gone)
