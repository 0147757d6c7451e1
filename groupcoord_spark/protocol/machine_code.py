"""The loops in ``loops.py`` as machine code: numba, the extra ``fast``, makes it where it is installed.

Without it the same is done column by column with numpy, which is slower and needs nothing more.
"""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec

ROWS_WORTH_LOADING = 20_000
"""What a faster look at so many rows saves is a small part of what loading numba takes; but more of them will follow."""


@cache
def load() -> bool:
    """Load the loops, which takes a fifth of a second; False where numba is not there for this numpy, or may keep nothing it compiles."""
    if find_spec("numba") is None:
        return False
    try:
        from groupcoord_spark.protocol import loops  # noqa: F401
    except (ImportError, OSError, RuntimeError):
        # A numba for another numpy; or no place for what it compiles, neither beside the package nor in the user's own cache: each
        # process would compile everything again.
        return False
    return True


def is_at_hand(rows: int) -> bool:
    """Whether the loops are to be used on so many rows: wherever they are loaded already, or worth it."""
    return (rows >= ROWS_WORTH_LOADING or load.cache_info().currsize > 0) and load()
