"""Python's garbage collector, switched off where it would only cost time, and on again afterwards: other code runs in the same process."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_collector() -> Iterator[None]:
    """No garbage collection in the block. For a million small objects without cycles: the collector would walk them again and again."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
