"""Decides whether records are decoded by the compiled loops of ``loops.py`` or one by one by the scalar decoders.

Loading numba and the kernels takes 0.2 to 0.4 s; meanwhile the scalar decoders read some ten thousand records. A process that reads fewer
records (planning, and most commands that only read the warehouse) never loads the kernels.
"""

import hashlib
import logging
import os
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

from groupcoord_spark.protocol.loop_cache import module_in_a_file, users_cache

ROWS_WORTH_LOADING = 50_000
"""The scalar decoders take 4 us a row, so these rows take about as long as to load the loops. A row counts once in each stage."""

_logger = logging.getLogger(__name__)


@cache
def load() -> ModuleType | None:
    """Load the module ``loops``. Return None, and log a warning, if numba cannot be imported or cannot store its compiled code.

    numba stores the code next to the package, in the user's cache or in NUMBA_CACHE_DIR (``loop_cache`` if the package is a zip). If it
    could write to none of them, every process would compile all kernels again. The run then continues with the scalar decoders, which write
    the same tables in about 25 times the time.
    """
    if (remark := remark_on_compiling()) is not None:
        _logger.warning(remark)
    try:
        return module_in_a_file("groupcoord_spark.protocol.loops")
    except (ImportError, OSError, RuntimeError) as fault:
        _warn(str(fault))
        return None


@cache
def load_json() -> ModuleType | None:
    """Load the module ``json_loops``, or return None as ``load`` does."""
    return None if load() is None else module_in_a_file("groupcoord_spark.protocol.json_loops")


@cache
def remark_on_compiling() -> str | None:
    """Return a message for the first process that compiles the kernels, or None if numba has compiled code for them."""
    room = Path(__file__).parent
    # numba keeps code next to the package, else in a directory named after the path of the package
    named, elsewhere = os.environ.get("NUMBA_CACHE_DIR"), f"{room.name}_{hashlib.sha1(str(room).encode()).hexdigest()}"
    if named:
        place = Path(named, elsewhere)
    elif os.access(room, os.W_OK):
        place = room / "__pycache__"
    else:
        place = users_cache() / "numba" / elsewhere
    loops = room / "loops.py"
    if find_spec("numba") is None or not loops.exists():  # in a zip: its copy is compiled once on a host
        return None
    if any(code.stat().st_mtime >= loops.stat().st_mtime for code in place.glob("loops.*.nbi")):
        return None
    return "The first run of an installation compiles loops, for some 20 seconds; `groupcoord warm-up` does that beforehand."


@cache
def warn_if_missing() -> None:
    """Logs the warning of ``load`` where numba is not installed. For the driver: its user does not see the logs of workers."""
    if find_spec("numba") is None:
        _warn("it is not installed")


def _warn(why: str) -> None:
    _logger.warning(
        "Records are decoded one by one, which takes about 25 times as long: numba cannot be used here (%s). "
        "Install numba with its numpy, or set NUMBA_CACHE_DIR to a directory that can be written.",
        why,
    )


_rows_so_far = 0


def loops_for(rows: int) -> ModuleType | None:
    """Return the kernels that decode ``rows`` more rows, or None if the scalar decoders should.

    The rows of earlier calls are added, so that many small batches load the loops in the end.
    """
    global _rows_so_far
    _rows_so_far += rows
    is_loaded = load.cache_info().currsize > 0
    return load() if is_loaded or _rows_so_far >= ROWS_WORTH_LOADING else None
