"""Several commands in one process of their own, whose streams have the encoding, the width and the colors that a test asks for."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence

_IN_TURN = """
import json, sys
from groupcoord_spark.cli import main
for words in json.loads(sys.argv[1]):
    try:
        main(words)
    except SystemExit as end:
        for stream in (sys.stdout, sys.stderr):
            print(end="\\0%d\\0" % end.code, file=stream, flush=True)
"""


def in_turn(commands: Iterable[Sequence[str]]) -> list[str]:
    """Return the command line of a process that runs the commands one after another: Python starts and imports once."""
    return [sys.executable, "-c", _IN_TURN, json.dumps(list(commands))]


def of_each(printed: str) -> list[tuple[str, int]]:
    """Return what each of the commands printed on a stream, and its exit code."""
    parts = printed.split("\0")
    return list(zip(parts[:-1:2], map(int, parts[1::2]), strict=True))
