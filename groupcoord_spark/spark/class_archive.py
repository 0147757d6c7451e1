"""An archive of the classes that Spark loads for a night: half of what a small run takes is Java reading them, the same in every run.

Java's own class data sharing (JEP 350): once a run has written the archive, later ones map it instead of unpacking, checking and laying
out some ten thousand classes. An archive that does not fit the Java or the jars of a run is left aside by Java, without a word.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    pass


QUIET = "-Xlog:cds*=off"
"""Java would name every class that cannot be archived, and say so where an archive does not fit: all on stdout."""


def archive() -> Path:
    """Where the archive of this Python environment is, or would be."""
    return Path(sys.prefix) / "share" / "groupcoord_spark" / "spark-classes.jsa"


def options_to_use() -> str:
    """Options of Java for a session that is to start from the archive; empty where there is none."""
    return f' "-XX:SharedArchiveFile={archive()}" {QUIET}' if archive().is_file() else ""
