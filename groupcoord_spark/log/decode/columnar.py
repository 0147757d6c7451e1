"""Reads the records of many batches to columns. Each record is as ``definition.read_records`` and ``definition.read_message`` read it.

The compiled loops read batches that are written in the usual way. All other batches, and all batches of a small input, are read by
``definition``.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from groupcoord_spark.log.decode.definition import MIN_RECORD, LegacyMessage, Record, RecordError, read_message, read_records
from groupcoord_spark.protocol import fast_path
from groupcoord_spark.protocol.slices import Bytes, Columns, Mask, Positions


@dataclass(slots=True)
class Rows(Columns):
    """Records of several batches, batch by batch in their order, as columns of one length.

    Attributes:
        batch: the index of the record's batch.
        offset_delta, timestamp_delta: int64; of old messages the whole offset and the whole timestamp of the message.
        key_start, key_end, value_start, value_end: positions in the buffer of the batches; start == end where null.
        key_is_null, value_is_null: bool.
        size: int64, bytes of the record with its length; of an old message all of its bytes.
    """

    batch: Positions
    offset_delta: Positions
    timestamp_delta: Positions
    key_start: Positions
    key_end: Positions
    key_is_null: Mask
    value_start: Positions
    value_end: Positions
    value_is_null: Mask
    size: Positions

    def without(self, batches: Iterable[int]) -> "Rows":
        """Return the rows of all other batches."""
        left_out = list(batches)
        return self.take(~np.isin(self.batch, left_out)) if left_out else self

    def columns(self) -> tuple[npt.NDArray[Any], ...]:
        """Return all columns except ``batch``."""
        return tuple(getattr(self, name) for name in Rows.__slots__ if name != "batch")

    @staticmethod
    def empty(n: int) -> "Rows":
        """``n`` rows whose contents are not set."""
        return Rows(*(np.empty(n, np.bool_ if name.endswith("is_null") else np.int64) for name in Rows.__slots__))

    def put(self, row: int, record: Record | LegacyMessage) -> None:
        """Sets one row to a record or a message."""
        self.offset_delta[row], self.timestamp_delta[row] = record[0], record[1]
        self.key_is_null[row], self.value_is_null[row] = record.key is None, record.value is None
        self.key_start[row], self.key_end[row] = record.key or (0, 0)
        self.value_start[row], self.value_end[row] = record.value or (0, 0)
        self.size[row] = record.size


def read_rows(data: Bytes, start: Positions, end: Positions, count: Positions) -> tuple[Rows, dict[int, RecordError]]:
    """Return the records of magic 2 batches, and the errors by batch. A batch with an error has no rows.

    Args:
        data, start, end: the decompressed records of batch i are ``data[start[i]:end[i]]``.
        count: how many records each batch claims.
    """
    room = end - start
    # these batches claim an impossible number of records; definition.py reports the reason
    is_hopeless = (count < 0) | (count > room // MIN_RECORD) | ((count == 0) & (room > 0))
    claimed, count = count, np.where(is_hopeless, 0, count)
    rows = Rows.empty(int(count.sum()))
    if loops := fast_path.loops_for(len(rows)):
        is_odd = is_hopeless
        loops.read_rows(data, start, end, count, rows.batch, *rows.columns(), is_odd)
    else:
        is_odd = np.ones(len(count), np.bool_)
        rows.batch[:] = np.repeat(np.arange(len(count)), count)
    errors: dict[int, RecordError] = {}
    odd = np.flatnonzero(is_odd)
    for i, first in zip(odd.tolist(), (np.cumsum(count) - count)[odd].tolist(), strict=True):
        try:
            records = read_records(data.data, int(start[i]), int(end[i]), int(claimed[i]))
        except RecordError as error:
            errors[i] = error
            continue
        for row, record in enumerate(records, first):
            rows.put(row, record)
    return rows.without(errors), errors


def read_messages(data: Bytes, start: Positions, end: Positions) -> tuple[Rows, dict[int, RecordError]]:
    """Uncompressed messages of magic 0 and 1 as rows, and the errors by message. A message with an error has no row.

    data, start, end: message i is ``data[start[i]:end[i]]``. ``Rows.batch`` is the index of the message.
    """
    rows = Rows.empty(len(start))
    rows.batch[:] = np.arange(len(rows))
    is_odd = np.ones(len(rows), np.bool_)
    if loops := fast_path.loops_for(len(rows)):
        loops.read_messages(data, start, end, *rows.columns(), is_odd)
    errors: dict[int, RecordError] = {}
    for i in np.flatnonzero(is_odd).tolist():
        try:
            rows.put(i, read_message(data.data, int(start[i]), int(end[i])))
        except RecordError as error:
            errors[i] = error
    return rows.without(errors), errors
