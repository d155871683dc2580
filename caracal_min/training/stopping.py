"""Signals that stop a run after its step, so that nothing of it is lost."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["StoppedError", "stopping_signals"]

_NUMBERS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]


class StoppedError(KeyboardInterrupt):
    """A signal stopped the run; the state after its last step was kept."""


@contextmanager
def stopping_signals() -> Iterator[list[str]]:
    """Give a list that gets the name of the signal that asks the process to end, while the body runs.

    A second signal does not wait: it raises KeyboardInterrupt at once.  What the process ignores, as SIGHUP under
    nohup, stays ignored, and outside of the main thread nothing changes.
    """
    received: list[str] = []

    def note(number: int, _frame: object) -> None:
        if received:
            raise KeyboardInterrupt
        received.append(signal.Signals(number).name)

    in_main_thread = threading.current_thread() is threading.main_thread()
    before = {number: signal.getsignal(number) for number in _NUMBERS} if in_main_thread else {}
    before = {number: handler for number, handler in before.items() if handler not in (signal.SIG_IGN, None)}
    for number in before:
        signal.signal(number, note)
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
