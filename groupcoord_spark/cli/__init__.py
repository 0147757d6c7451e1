"""The commands: ``groupcoord`` on the command line, and ``main`` for other callers (``python -m groupcoord_spark``, ``jobs/``).

Commands print data on stdout and everything else on stderr, end 0, 1 or 2, and show no traceback for what a user can cause. A command's
module is imported when it is called: ``list`` and ``describe`` start without Spark. No rule about groups or offsets lives here.
"""

import os
from collections.abc import Sequence
from typing import NoReturn

from groupcoord_spark.cli import interruption


def main(args: Sequence[str] | None = None) -> NoReturn:
    """Runs a command and ends the process with its exit code.

    ``args`` None takes the process's own arguments; signals then end the process as ``interruption`` defines. With ``args``, for example
    inside another program or under spark-submit, signal handlers stay as they are.
    """
    if args is None and os.name == "posix" and "PYSPARK_GATEWAY_PORT" not in os.environ:
        interruption.run_in_own_process(_run)
    _run(args)


def _run(args: Sequence[str] | None = None) -> NoReturn:
    from groupcoord_spark.cli.commands import main as groupcoord

    groupcoord.main(args)
    raise AssertionError("a command leaves by SystemExit")
