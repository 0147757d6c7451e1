"""Where records lie in the bytes of a log: directories, segments, batches, and the damage in them.

``plan_logs`` finds the files of every partition under the user's paths. ``read_segment`` reads one file in bounded memory and yields its
records in offset order, in chunks of columns; keys and values are ranges of one buffer. Damage never raises: it is reported with the
records, as ``Lost`` for unused bytes and as ``PlacedDoubt`` for used ones. ``CODES`` explains the codes. Nothing here needs Spark or
interprets keys and values. ``salvage`` contains the code that runs only for damaged files.
"""

from groupcoord_spark.log.continuation import ChangedFiles, changed_files, has_every_offset, segments_from
from groupcoord_spark.log.damage import CODES, Code, DamageKind, Lost, PlacedDoubt
from groupcoord_spark.log.decode.records import Records
from groupcoord_spark.log.directory import LogPlan, PartitionLog, leader_epochs_of, log_start_was_moved, plan_logs
from groupcoord_spark.log.ends import EpochAt
from groupcoord_spark.log.high_watermark import cut_at_high_watermarks
from groupcoord_spark.log.marks import RecordMark, epoch_below, first_record, newest_record, record_at, record_crc
from groupcoord_spark.log.ranges import RangeOffsets, check_range, possible_ranges, ranges_to_read
from groupcoord_spark.log.segment import CHUNK_BYTES, Chunk, Segment, read_segment
