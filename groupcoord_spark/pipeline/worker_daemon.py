"""Spark's daemon of Python workers, with the modules of a run already loaded: the forked workers share them.

With Spark's own daemon each worker loads the modules again, which costs most of a second and some tens of megabytes for each worker.
"""

import gc
import re
import sys
from importlib.machinery import PathFinder

SPARK_ARCHIVE = re.compile(r"[/\\](pyspark\.zip|py4j-[^/\\]+-src\.zip|[^/\\]+\.jar)$")


def prefer_installed_pyspark() -> None:
    """Remove the archives that Spark puts first from ``sys.path``, if pyspark is also installed.

    Modules in them are compiled each time they are loaded, and a worker reads an archive's list of files again before every task.
    """
    rest = [entry for entry in sys.path if not SPARK_ARCHIVE.search(entry)]
    if all(PathFinder.find_spec(name, rest) for name in ("pyspark", "py4j")):
        for entry in set(sys.path).difference(rest):
            sys.path_importer_cache.pop(entry, None)
        sys.path[:] = rest


def main() -> None:
    gc.set_threshold(20_000)  # modules and states make objects that stay: to look for garbage after each 700 costs 3 % of a run
    prefer_installed_pyspark()
    import pandas  # noqa: F401  pyarrow itself loads it with the first array it makes
    from pyspark.daemon import manager

    import groupcoord_spark.pipeline.run  # noqa: F401
    from groupcoord_spark.doctor.gather.counts import loop_for
    from groupcoord_spark.protocol import fast_path

    fast_path.load()
    loop_for(0)

    # The loaded modules live as long as the workers. Frozen, they are not visited by the garbage collector, which would copy their pages.
    gc.freeze()
    manager()  # type: ignore[no-untyped-call]


if __name__ == "__main__":
    main()
