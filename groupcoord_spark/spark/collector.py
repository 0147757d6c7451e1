"""Python's garbage collector, switched off for blocks that create many objects without cycles."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_collector() -> Iterator[None]:
    """No garbage collection in the block; afterwards the collector is as before, because other code may run in the same process.

    For blocks that create a million objects without cycles, which the collector would visit again and again and never free.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
