"""Where records lie in the bytes of a log: directories, segments, batches, and what is damaged in them.

``plan_logs`` finds the files of every partition under the paths that somebody names. ``read_segment`` reads one of them in bounded
memory and gives its records in the order of their offsets, in chunks of columns whose keys and values are places in one buffer. Whatever
is wrong with the bytes is data beside the records: ``Lost`` for what is not used, ``Doubt`` for what is accepted, with codes that
``CODES`` explains. No Spark here, and nothing about what keys and values mean.
"""

from groupcoord_spark.log.damage import CODES, Code, Doubt, Kind, Lost
from groupcoord_spark.log.directory import LogPlan, PartitionLog, plan_logs
from groupcoord_spark.log.limits import Limits
from groupcoord_spark.log.ranges import Walked, checked_ranges, possible_ranges, walk
from groupcoord_spark.log.records import Records
from groupcoord_spark.log.segment import Chunk, Segment, read_segment

__all__ = [
    "CODES",
    "Chunk",
    "Code",
    "Doubt",
    "Kind",
    "Limits",
    "LogPlan",
    "Lost",
    "PartitionLog",
    "Records",
    "Segment",
    "Walked",
    "checked_ranges",
    "plan_logs",
    "possible_ranges",
    "read_segment",
    "walk",
]
