"""Compiles the loops before the processes of pytest begin, which would otherwise all compile the loops at once.

``python -m tests.loops`` compiles them as they are shipped, and with a check of every index.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[1]

# numba does not know its compiled code with the check from that without, so each has a directory of its own.
WITH_CHECK = {"NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": str(ROOT / ".pytest_cache" / "loops-with-bounds-check")}
"""Variables of a process whose compiled loops check every index."""


def compile_loops(*variants: Mapping[str, str]) -> None:
    """Compiles the loops once for each variant: the variables of numba for that process; without variables the loops are as shipped."""
    as_shipped = {name: value for name, value in os.environ.items() if not name.startswith("NUMBA_")}
    command = [sys.executable, "-c", "import groupcoord_spark.protocol.json_loops"]
    compilers = [subprocess.Popen(command, cwd=ROOT, env=as_shipped | variables) for variables in variants]
    for compiler in compilers:
        compiler.wait()


if __name__ == "__main__":
    compile_loops({}, WITH_CHECK)
