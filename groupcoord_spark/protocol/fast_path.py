"""Whether records are decoded by the compiled loops of ``loops.py`` or by the scalar decoders, which define what is right.

Loading numba and the loops takes 0.2 to 0.4 s, in which the scalar decoders read some ten thousand records. A process that reads fewer
(planning, most commands that only read the warehouse) never loads them.
"""

from __future__ import annotations

import logging
from functools import cache
from importlib.util import find_spec
from types import ModuleType

ROWS_WORTH_LOADING = 50_000
"""The scalar decoders take 4 us a row, so these rows take about as long as loading the loops. Each stage counts the rows it reads."""

_logger = logging.getLogger(__name__)


@cache
def load() -> ModuleType | None:
    """The module ``loops``; None, with a warning in the log, where numba cannot be imported or has no place for its compiled code.

    Without a place neither beside the package nor in the user's cache nor in NUMBA_CACHE_DIR every process would compile everything
    again. The run goes on with the scalar decoders: its tables are the same, and a slow night is better than none.
    """
    try:
        from groupcoord_spark.protocol import loops
    except (ImportError, OSError, RuntimeError) as fault:
        _warn(str(fault))
        return None
    return loops


@cache
def warn_if_missing() -> None:
    """Log the warning of ``load`` where numba is not installed, without loading it: for a driver, whose user sees no log of its workers."""
    if find_spec("numba") is None:
        _warn("it is not installed")


def _warn(why: str) -> None:
    _logger.warning(
        "Records are decoded one by one, which takes about 25 times as long: numba cannot be used here (%s). "
        "Install numba beside its numpy, or set NUMBA_CACHE_DIR to a directory that can be written.",
        why,
    )


_rows_so_far = 0


def loops_for(rows: int) -> ModuleType | None:
    """The loops, to be used on ``rows`` more rows; None: the scalar decoder is to be used.

    Rows of earlier calls count as well, so that many small batches load the loops in the end.
    """
    global _rows_so_far
    _rows_so_far += rows
    is_loaded = load.cache_info().currsize > 0
    return load() if is_loaded or _rows_so_far >= ROWS_WORTH_LOADING else None
