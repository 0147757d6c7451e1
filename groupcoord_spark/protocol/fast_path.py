"""Decides whether records are decoded by the compiled loops of ``loops.py`` or one by one by the scalar decoders.

To load numba and the loops takes 0.2 to 0.4 s, in which the scalar decoders read some ten thousand records. A process that reads fewer
records (planning, and most commands that only read the warehouse) never loads the loops.
"""

from __future__ import annotations

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
    """The module ``loops``; None, with a warning in the log, where numba cannot be imported or cannot store its compiled code.

    numba stores the code beside the package, in the user's cache or in NUMBA_CACHE_DIR (``loop_cache``: where the package is a zip). Where
    it can write to none of them, every process would compile all loops again. The run goes on with the scalar decoders: the same tables,
    in about 25 times the time.
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
    """The module ``json_loops``; None where ``load`` gives None."""
    return None if load() is None else module_in_a_file("groupcoord_spark.protocol.json_loops")


@cache
def remark_on_compiling() -> str | None:
    """A sentence for the user where the first process that loads the loops compiles them; None where numba has code of these loops."""
    room = Path(__file__).parent
    # numba keeps code beside the package, else in a directory that it names after the path of the package
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
        "Install numba beside its numpy, or set NUMBA_CACHE_DIR to a directory that can be written.",
        why,
    )


_rows_so_far = 0


def loops_for(rows: int) -> ModuleType | None:
    """The loops to decode ``rows`` more rows with; None where the scalar decoders must decode them.

    The rows of earlier calls are added, so that many small batches load the loops in the end.
    """
    global _rows_so_far
    _rows_so_far += rows
    is_loaded = load.cache_info().currsize > 0
    return load() if is_loaded or _rows_so_far >= ROWS_WORTH_LOADING else None
