"""Spark's daemon of Python workers, with all that a run's workers load already there: those it forks share it.

Spark's own daemon leaves it to each of them, which costs most of a second and some tens of megabytes a worker.
"""

import gc
import re
import sys
from importlib.machinery import PathFinder

SPARK_ARCHIVE = re.compile(r"[/\\](pyspark\.zip|py4j-[^/\\]+-src\.zip|[^/\\]+\.jar)$")


def prefer_installed_pyspark() -> None:
    """Leave the archives that Spark puts first out of ``sys.path``, where pyspark is installed as well.

    Modules in them are compiled each time they are loaded, and a worker reads an archive's list of files again before every task.
    """
    rest = [entry for entry in sys.path if not SPARK_ARCHIVE.search(entry)]
    if all(PathFinder.find_spec(name, rest) for name in ("pyspark", "py4j")):
        for entry in set(sys.path).difference(rest):
            sys.path_importer_cache.pop(entry, None)
        sys.path[:] = rest


def main() -> None:
    prefer_installed_pyspark()
    import pandas  # noqa: F401  pyarrow itself loads it with the first array it makes
    from pyspark.daemon import manager

    import groupcoord_spark.pipeline.nightly  # noqa: F401
    from groupcoord_spark.protocol import fast_path

    fast_path.load()

    # What is loaded by now lives as long as the workers do: collecting garbage need not walk it, which would also copy its pages.
    gc.freeze()
    manager()  # type: ignore[no-untyped-call]


if __name__ == "__main__":
    main()
