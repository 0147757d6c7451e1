"""The archive of the classes that Spark loads for a run. Loading the classes is half of the time of a small run.

Java's own class data sharing (JEP 350): later sessions map the archive into memory instead of unpacking and checking
ten thousand classes. Java ignores, without a message, an archive that was made by another Java or from other jars.
"""

import sys
from pathlib import Path

QUIET = "-Xlog:cds*=off"
"""Without this option Java prints, on stdout, every class that it cannot archive, and that an archive does not fit."""


def archive() -> Path:
    """Return the path of this Python environment's archive, whether or not it exists."""
    return Path(sys.prefix) / "share" / "groupcoord_spark" / "spark-classes.jsa"


def options_to_use() -> str:
    """Return the Java options of a session that starts from the archive, or "" without an archive."""
    return f' "-XX:SharedArchiveFile={archive()}" {QUIET}' if archive().is_file() else ""
