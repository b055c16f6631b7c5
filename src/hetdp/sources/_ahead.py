"""Work done ahead of whoever asks for it, on all cores, in order."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def in_order(work: Callable[[Item], Result], items: Iterable[Item], threads: int | None = None) -> Iterator[Result]:
    """Yield work(item) for every item, in their order; a few are under way at a time.

    An error surfaces at its item's turn, so which one is seen does not depend on who was faster.

    >>> list(in_order(str.upper, "abc"))
    ['A', 'B', 'C']
    """
    threads = threads or os.cpu_count() or 1
    pool = ThreadPoolExecutor(threads)
    waiting: deque[Future[Result]] = deque()
    try:
        for item in items:
            waiting.append(pool.submit(work, item))
            if len(waiting) > threads:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)
