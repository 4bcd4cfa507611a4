"""Ctrl-C, signals of schedulers, closed terminals and pipes: a run stops in order."""

import contextlib
import os
import select
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType

SIGNALS = (
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGXCPU,
    signal.SIGPIPE,
)


class Interrupt:
    """Whether the run was asked to stop.

    Attributes:
        asked: The first signal, or 0; the second Ctrl-C stops at once.
    """

    asked = 0


@contextlib.contextmanager
def deferred(announce: Callable[[str], None]) -> Iterator[Interrupt]:
    """Turns the first signal into a flag, which the caller reads when it can stop.

    Args:
        announce: Tells the user that the interrupt was noticed.
    """
    interrupt = Interrupt()

    def note(number: int) -> None:
        # A scheduler sends a signal to a process and its group, or every second.
        if interrupt.asked and number == signal.SIGINT:
            raise KeyboardInterrupt(number)
        if interrupt.asked:
            return
        interrupt.asked = number
        if number != signal.SIGPIPE:  # which arrives while the output is written
            announce("stopping after this chunk of steps; Ctrl-C again stops at once")

    with handled(note):
        yield interrupt


@contextlib.contextmanager
def handled(act: Callable[[int], None]) -> Iterator[None]:
    """Calls ``act`` with each signal that asks the program to stop."""

    def handle(number: int, frame: FrameType | None) -> None:
        gone = _silence_closed()
        # The pipe may also be a connection to another host.
        if number != signal.SIGPIPE or gone:
            act(number)

    # Python allows only the main thread to handle signals.
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in SIGNALS}
    if before[signal.SIGHUP] is signal.SIG_IGN:  # by nohup
        del before[signal.SIGHUP]
    before = {number: was for number, was in before.items() if was is not None}
    for number in before:
        signal.signal(number, handle)
    try:
        yield
    finally:
        for number, was in before.items():
            signal.signal(number, was)


def stop(number: int) -> None:
    """Raises ``KeyboardInterrupt`` with the signal."""
    raise KeyboardInterrupt(number)


def ignore() -> None:
    """Ignores all signals but Ctrl-C, while the program says how to continue."""
    for number in SIGNALS[1:]:
        signal.signal(number, signal.SIG_IGN)


def _silence_closed() -> bool:
    """Sends output that nobody can read to nowhere, and returns whether there is any.

    Otherwise every later line would be an error, and no checkpoint would be written.
    """
    poll = select.poll()
    for descriptor in (1, 2):
        poll.register(descriptor, 0)
    closed = select.POLLERR | select.POLLHUP
    gone = [descriptor for descriptor, event in poll.poll(0) if event & closed]
    for descriptor in gone:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, descriptor)
        os.close(nowhere)
    return bool(gone)
