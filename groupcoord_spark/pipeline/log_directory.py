"""Reads for a night what lies in the log directories beside ``__consumer_offsets``, on the driver: these files are small.

Each part is optional. What is missing leaves its tables without rows; what is damaged is not used, and a warning says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from groupcoord_spark.errors import InputError
from groupcoord_spark.log.damage import PlacedDoubt
from groupcoord_spark.log.files.storage import shown
from groupcoord_spark.pipeline.run import RunRequest
from groupcoord_spark.sources.log_directory import LOG_END_COLUMNS, DamagedFile, find_log_directories, read_log_ends
from groupcoord_spark.sources.rows import InputKind
from groupcoord_spark.warehouse.tables import LOG_ENDS


@dataclass(frozen=True, slots=True)
class BesideTheOffsets:
    """What a night found beside the offsets topic.

    tables: table -> rows, in columns as ``Table.from_milliseconds`` takes them. doubts: a warning for each file that is not used.
    """

    tables: Mapping[str, pa.Table] = field(default_factory=dict)
    doubts: tuple[PlacedDoubt, ...] = ()


def read_beside_the_offsets(request: RunRequest, kind: InputKind, run_id: str) -> BesideTheOffsets:
    """The rows and warnings of a run. Only a night over segments has log directories; a look-back is about another moment."""
    damages: list[DamagedFile] = []
    directories = []
    if kind is InputKind.SEGMENTS and request.until is None:
        try:
            directories = find_log_directories(request.inputs)
        except InputError as error:
            damages.append(DamagedFile(", ".join(map(shown, request.inputs)), str(error)))
    log_ends = _log_ends_of_user(request) if request.log_ends else _sampled(read_log_ends(directories, damages), "checkpoint")
    tables = {LOG_ENDS.name: log_ends}
    of_run = {name: rows.append_column("run_id", pa.repeat(run_id, rows.num_rows)) for name, rows in tables.items()}
    doubts = tuple(PlacedDoubt("log_directory_file_not_used", damage.sentence, damage.source, None, 0, 0, None) for damage in damages)
    return BesideTheOffsets(of_run, doubts)


def _log_ends_of_user(request: RunRequest) -> pa.Table:
    """The sample that the user gave, or let the run ask the brokers for: it wins over checkpoints."""
    rows = [
        (topic, partition, request.log_starts.get((topic, partition)), end_offset, request.log_ends_sampled_at_ms)
        for (topic, partition), end_offset in sorted(request.log_ends.items())
    ]
    columns = [pa.array(column, kind.type) for column, kind in zip(zip(*rows, strict=True), LOG_END_COLUMNS, strict=True)]
    # Only brokers that are asked tell where logs begin.
    source = "broker" if request.log_starts else "sample"
    return _sampled(pa.table(columns, schema=LOG_END_COLUMNS), source)


def _sampled(ends: pa.Table, source: str) -> pa.Table:
    """One sample: the moment of its newest part stands in all of its rows, so that a view finds the rows of the newest sample."""
    sampled_at = pc.max(ends["written_at_ms"])
    rows = ends.append_column("sampled_at_ms", pa.chunked_array([pa.repeat(sampled_at, ends.num_rows)], pa.int64()))
    return rows.append_column("source", pa.repeat(source, ends.num_rows))
