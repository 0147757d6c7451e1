"""What the records of an offsets partition add up to, by group and by key."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from types import ModuleType
from typing import Any

import numpy as np
import pyarrow as pa

from groupcoord_spark.doctor.gather.group_table import NONE, GroupTable
from groupcoord_spark.doctor.gather.key_table import KeyTable
from groupcoord_spark.doctor.gather.open_records import Fates
from groupcoord_spark.doctor.gather.record_loop import GROUP, TOTALS, add_records
from groupcoord_spark.log import Chunk, Records
from groupcoord_spark.protocol import DecodeError, decode_value, fast_path
from groupcoord_spark.protocol.columnar import KeyColumns, decode_key_columns
from groupcoord_spark.protocol.loop_cache import module_in_a_file
from groupcoord_spark.protocol.slices import Ints, Slices

_NOTHING = np.zeros(0, np.int64)
_OF_NO_RECORDS = np.zeros(0, np.bool_), *[_NOTHING] * 4


@dataclass(frozen=True, slots=True)
class ChunkKeys:
    """The keys of the records of a chunk. code: of each record, its row in ``distinct`` and ``columns``; -1 for none."""

    code: Ints
    distinct: pa.BinaryArray
    columns: KeyColumns

    @staticmethod
    def of(records: Records) -> "ChunkKeys":
        """Return the keys of records that have not been decoded yet."""
        code, distinct = records.distinct_keys()
        return ChunkKeys(code, distinct, decode_key_columns(Slices.from_arrow(distinct)))


class RecordCounts:
    """Facts of groups and keys over all chunks. totals: the sums that ``record_loop`` names."""

    def __init__(self) -> None:
        self.groups = GroupTable()
        self.keys = KeyTable()
        self.totals = np.zeros(TOTALS, np.int64)

    def add(self, chunk: Chunk, keys: ChunkKeys, key_of_code: Ints, fates: Fates, *, is_active: bool) -> Ints:
        """Add the records of a chunk, and return the runs of missing offsets in each batch; -1 for a batch without records.

        key_of_code: the result of ``keys.numbers``. is_active: the chunk is of the active segment.
        """
        records, entries = chunk.records, chunk.entries
        missing, longest = np.full(len(entries), NONE), np.full(len(self.groups.rows), NONE)
        of_new = records.is_transactional, chunk.batch, entries.first_offset, entries.last_offset, entries.size
        waited = records.value, keys.code, fates, records.record_offset, chunk.record_size, records.timestamp_ms
        self._add((*waited, True, *of_new, key_of_code, is_active, missing), longest)
        for row in longest[longest >= 0].tolist():
            group = int(self.keys.rows[key_of_code[keys.code[row]], GROUP])
            self._measure_metadata(group, int(keys.columns.key_type[keys.code[row]]), records.value.row(row))
        return missing

    def add_waiting(self, records: pa.Table, fates: Fates, *, is_active: bool) -> None:
        """Add what depends on the fate of records that waited for it. is_active: a marker in the active segment decides."""
        numbers, place = np.unique(records["key"], return_inverse=True)
        head = Slices.from_arrow(records["head"])
        waited = head, place, fates, *(records[name].to_numpy() for name in ("record_offset", "size", "timestamp_ms"))
        self._add((*waited, False, *_OF_NO_RECORDS, numbers, is_active, _NOTHING), _NOTHING)

    def absorb(self, later: "RecordCounts") -> Ints:
        """Add the counts of records that follow, and return the number here of each of their keys, by the key's number there."""
        group_numbers = self.groups.absorb(later.groups)
        self.totals += later.totals
        return self.keys.absorb(later.keys, group_numbers, self.groups)

    def _add(self, columns: tuple[Any, ...], longest: Ints) -> None:
        """Run the loop. columns: its arguments in their order, but the tables."""
        value, code, *more_columns = columns
        tables = self.groups.rows, self.keys.rows, longest, self.totals
        loop_for(len(code))(value.data, value.start, value.end, value.is_null, code, *more_columns, *tables)

    def _measure_metadata(self, group: int, key_type: int, value: bytes | None) -> None:
        """Note the bytes of the metadata in the value of a commit."""
        try:
            decoded = decode_value(key_type, value)
        except DecodeError:
            return
        if decoded is not None and (metadata := decoded.fields.get("metadata")):
            self.groups.note_metadata(group, len(metadata.encode()))


def loop_for(rows: int) -> Callable[..., None]:
    """Return the loop over ``rows`` records, compiled if the decoding kernels are."""
    loops = fast_path.loops_for(rows)
    return add_records if loops is None else _compiled(loops)


@cache
def _compiled(loops: ModuleType) -> Callable[..., None]:
    numbers, flags, table, filled = loops.NUMBERS, loops.FLAGS, loops.TABLE_OUT, loops.NUMBERS_OUT
    signature = loops.types.void(
        loops.BYTES, numbers, numbers, flags, numbers, loops.SHORTS, numbers, numbers, numbers, loops.types.boolean, flags, numbers,
        numbers, numbers, numbers, numbers, loops.types.boolean, filled, table, table, filled, filled,
    )  # fmt: skip
    compiled: Callable[..., None] = loops.compiled(signature)(module_in_a_file(add_records.__module__).add_records)
    return compiled
