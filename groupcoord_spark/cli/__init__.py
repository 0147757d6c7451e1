"""The commands: ``groupcoord`` on the command line, ``main`` for whoever starts it (``python -m groupcoord_spark``, ``jobs/``).

Commands print data on stdout and everything else on stderr, end 0, 1 or 2, and show no traceback for what a user can cause. A command's
module is imported when it is called: ``list`` and ``describe`` start without Spark. No rule about groups or offsets lives here.
"""

from groupcoord_spark.cli.commands import main

__all__ = ["main"]
