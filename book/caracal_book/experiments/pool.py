"""Runs at a time: a function of many items, each in a process of one thread, results as they end."""

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from multiprocessing import get_context, parent_process
from multiprocessing.connection import wait as wait_for_end
from typing import Any

import torch

__all__ = ["each"]


def each(function: Callable[[Any], Any], items: Sequence[Any], processes: int) -> Iterator[Any]:
    """Yield what a function returns for each item, as it ends.

    Args:
        function: what a new process can import, with arguments bound by `functools.partial` if need be.
        items: handed out one at a time, in this order, so that a stop has nothing waiting.
        processes: how many at a time, each in one thread, and ended when this one has; 1 stays in this process.
    """
    if processes == 1:
        yield from map(function, items)
        return
    pool, todo, under_way = ProcessPoolExecutor(processes, get_context("spawn"), _begin), iter(items), set()
    try:
        for item in todo:
            under_way.add(pool.submit(function, item))
            if len(under_way) == processes:
                ended, under_way = wait(under_way, return_when=FIRST_COMPLETED)
                yield from (run.result() for run in ended)
        while under_way:
            ended, under_way = wait(under_way, return_when=FIRST_COMPLETED)
            yield from (run.result() for run in ended)
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _begin() -> None:
    """Compute in one thread, and end when the process that started this one has."""
    torch.set_num_threads(1)
    parent = parent_process().sentinel
    threading.Thread(target=lambda: (wait_for_end([parent]), os._exit(1)), daemon=True).start()
