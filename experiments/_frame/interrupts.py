"""Defers Ctrl-C until the run can stop without losing results."""

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType


class Interrupt:
    """Whether the user has pressed Ctrl-C.

    Attributes:
        asked: Set by the first Ctrl-C; the second one stops at once.
    """

    asked = False


@contextlib.contextmanager
def deferred(announce: Callable[[str], None]) -> Iterator[Interrupt]:
    """Turns the first Ctrl-C into a flag, which the caller reads when it can stop.

    Args:
        announce: Tells the user that the interrupt was noticed.
    """
    interrupt = Interrupt()

    def handle(number: int, frame: FrameType | None) -> None:
        if interrupt.asked:
            raise KeyboardInterrupt
        interrupt.asked = True
        announce("stopping after this chunk of steps; Ctrl-C again stops at once")

    # Python allows only the main thread to handle signals.
    if threading.current_thread() is not threading.main_thread():
        yield interrupt
        return
    before = signal.signal(signal.SIGINT, handle)
    try:
        yield interrupt
    finally:
        signal.signal(signal.SIGINT, before)
