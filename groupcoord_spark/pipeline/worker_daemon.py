"""Spark's daemon of Python workers, with all that a run's workers load already there: those it forks share it.

Spark's own daemon leaves it to each of them, which costs most of a second and some tens of megabytes a worker.
"""

import gc

import pandas  # noqa: F401  pyarrow itself loads it with the first array it makes
from pyspark.daemon import manager

import groupcoord_spark.pipeline.nightly
import groupcoord_spark.pipeline.writers  # noqa: F401

if __name__ == "__main__":
    # What is loaded by now lives as long as the workers do: collecting garbage need not walk it, which would also copy its pages.
    gc.freeze()
    manager()  # type: ignore[no-untyped-call]
