"""Where records lie in the bytes of a log: directories, segments, batches, and what is damaged in them.

``plan_logs`` finds the files of every partition under the paths that the user names. ``read_segment`` reads one file in bounded memory and
gives its records in the order of their offsets, in chunks of columns; keys and values are ranges of one buffer. Damage never raises: it is
reported beside the records, as ``Lost`` where bytes are not used and as ``PlacedDoubt`` where they are used. ``CODES`` explains the codes.
Nothing here needs Spark or knows what keys and values mean. ``salvage`` holds everything that exists only for damaged files.
"""

from groupcoord_spark.log.continuation import ChangedFiles, changed_files, has_every_offset, segments_from
from groupcoord_spark.log.damage import CODES, Code, DamageKind, Lost, PlacedDoubt
from groupcoord_spark.log.decode.records import Records
from groupcoord_spark.log.directory import LogPlan, PartitionLog, plan_logs
from groupcoord_spark.log.high_watermark import cut_at_high_watermarks
from groupcoord_spark.log.marks import RecordMark, first_record, newest_record, record_at, record_crc
from groupcoord_spark.log.ranges import RangeOffsets, check_range, possible_ranges, ranges_to_read
from groupcoord_spark.log.segment import CHUNK_BYTES, Chunk, Segment, read_segment
