"""Whether the loops in ``loops.py``, here and in ``log``, can be had as machine code: numba, the extra ``fast``, makes it.

Without it the same is done column by column with numpy, which is slower and needs nothing more.
"""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec


@cache
def is_installed() -> bool:
    """True where numba is installed and has a place to keep what it compiles. Loads it, which takes a fifth of a second."""
    if find_spec("numba") is None:
        return False
    try:
        from groupcoord_spark.protocol import loops  # noqa: F401
    except (OSError, RuntimeError):
        # Neither beside the package nor in the user's own cache: each process would compile everything again.
        return False
    return True
