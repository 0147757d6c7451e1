"""Replay one offsets partition from batches of kept records, including state that needs the log and not only the coordinator."""

from collections.abc import Mapping
from itertools import chain
from typing import Any, Self

import numpy as np
import pyarrow as pa

from groupcoord_spark.coordinator.semantics import Semantics
from groupcoord_spark.coordinator.transactions import OffsetKey, StoredOffset
from groupcoord_spark.log import Records
from groupcoord_spark.pipeline.exchange.kept_records import batches_of_size, records_of_kept
from groupcoord_spark.pipeline.read.decode import DecodedChunk, decode_kept_records
from groupcoord_spark.pipeline.replay.redundant_assignments import find_redundant_records
from groupcoord_spark.pipeline.replay.unchecked_ownership import KeptRecordsCoordinator
from groupcoord_spark.protocol.columnar import decode_offset_value_columns
from groupcoord_spark.protocol.definition import decode_key, decode_value
from groupcoord_spark.protocol.messages import RECORD_TYPES
from groupcoord_spark.protocol.record_types import NOT_A_CONTROL_RECORD, KeyType
from groupcoord_spark.protocol.slices import Ints, Mask

REPLAYED_AT_ONCE_BYTES = 4 << 20
"""Bytes of records that are replayed together. Small batches are joined, because each batch costs one pass over the state of its groups."""

KNOWN_KEY_TYPES = [key_type for key_type, record_type in RECORD_TYPES.items() if record_type.dialect is None]


class KeptRecordsReplay:
    """The replay of one offsets partition from batches of kept records. Also counts live keys and open transactions, which need the log."""

    def __init__(self, semantics: Semantics) -> None:
        self.coordinator = KeptRecordsCoordinator(semantics)
        self.semantics = semantics
        self._live_keys: set[bytes] = set()
        self._type_0_keys: set[bytes] = set()
        self.open_since: dict[int, int] = {}
        """Producer id -> record offset of the first record of its open transaction."""
        self._next_offset = 0

    @classmethod
    def of(cls, latest: pa.RecordBatch, semantics: Semantics) -> Self:
        """Replay the latest records of an earlier run."""
        replay = cls(semantics)
        replay.apply_latest(latest)
        return replay

    def apply_latest(self, latest: pa.RecordBatch) -> None:
        """Replay the latest records of an earlier run, a batch of KEPT of any size."""
        for part in batches_of_size([latest], REPLAYED_AT_ONCE_BYTES):
            self.apply(part)

    def apply(self, batch: pa.RecordBatch) -> None:
        """Replay a batch of KEPT that follows all earlier batches. Records that are not accepted are skipped; the reader has warned."""
        records, decodes = records_of_kept(batch)
        first, last = int(records.record_offset[0]), int(records.record_offset[-1])
        if first < self._next_offset:
            raise AssertionError(f"records from {first} on follow those up to {self._next_offset}: the shuffle lost their order")
        self._next_offset = last + 1
        key_type = records.key.leading_int16()
        distinct_keys = records.distinct_keys()
        self._update_live_keys(records, *distinct_keys, is_type_0=decodes & (key_type == KeyType.LEGACY_OFFSET_COMMIT))
        self._update_open_transactions(records)
        is_read = decodes & ((records.control_type != NOT_A_CONTROL_RECORD) | np.isin(key_type, KNOWN_KEY_TYPES))
        if not is_read.all():
            records = records.take(is_read)
            distinct_keys = records.distinct_keys()
        decoded = decode_kept_records(records, np.ones(len(records), np.bool_), self.semantics, distinct_keys)
        raw_keys = distinct_keys[1]
        coordinator = self.coordinator
        without_collisions, others, is_redundant = find_redundant_records(decoded, coordinator)
        coordinator.rule_out_collisions(without_collisions, others)
        keys = decoded.keys
        group_ids, topics, partitions = keys.group_id.to_pylist(), keys.topic.to_pylist(), keys.partition.tolist()
        values = _values(decoded, is_redundant)
        applied = np.flatnonzero((decoded.kinds.coordinator_accepts | decoded.kinds.is_control) & ~is_redundant)
        group_keys: dict[int, Mapping[str, Any]] = {}
        rows = zip(
            applied.tolist(),
            records.record_offset[applied].tolist(),
            records.timestamp_ms[applied].tolist(),
            records.control_type[applied].tolist(),
            records.producer_id[applied].tolist(),
            records.is_transactional[applied].tolist(),
            decoded.kinds.key_type[applied].tolist(),
            decoded.key_code[applied].tolist(),
            strict=True,
        )
        for row, record_offset, timestamp_ms, control_type, producer_id, is_transactional, key_type, code in rows:
            if control_type != NOT_A_CONTROL_RECORD:
                coordinator.apply_marker(producer_id, control_type)
            elif key_type >= KeyType.GROUP_METADATA:
                key = group_keys.get(code)
                if key is None:
                    key = group_keys[code] = decode_key(raw_keys[code].as_py()).fields
                group_value = decode_value(key_type, values[row])
                version, fields = (None, None) if group_value is None else (group_value.version, group_value.fields)
                coordinator.apply_group_record(record_offset, timestamp_ms, key_type, key, version, fields)
            else:
                coordinator.apply_offset_commit(
                    producer_id, is_transactional, key_type, group_ids[code], topics[code], partitions[code], values[row]
                )

    def _update_live_keys(self, records: Records, key_code: Ints, distinct: pa.BinaryArray, *, is_type_0: Mask) -> None:
        """Update the sets of live keys. is_type_0: bool[n], records that decode and have key type 0; only their offsets can come back."""
        keys = distinct.to_pylist()
        has_key = key_code >= 0
        for live, rows in ((self._live_keys, np.flatnonzero(has_key)), (self._type_0_keys, np.flatnonzero(has_key & is_type_0))):
            newest = np.full(len(keys), -1, np.int64)
            newest[key_code[rows]] = rows
            seen = np.flatnonzero(newest >= 0)
            for code, is_gone in zip(seen.tolist(), records.value.is_null[newest[seen]].tolist(), strict=True):
                if is_gone:
                    live.discard(keys[code])
                else:
                    live.add(keys[code])

    def _update_open_transactions(self, records: Records) -> None:
        is_control = records.control_type != NOT_A_CONTROL_RECORD
        rows = np.flatnonzero(is_control | records.is_transactional)
        columns = (records.record_offset[rows].tolist(), records.producer_id[rows].tolist(), is_control[rows].tolist())
        for record_offset, producer_id, ends in zip(*columns, strict=True):
            if ends:
                self.open_since.pop(producer_id, None)
            else:
                self.open_since.setdefault(producer_id, record_offset)

    def live_among(self, keys: set[bytes]) -> tuple[set[bytes], set[bytes]]:
        """Return which of these keys are live, and which of those have key type 0."""
        return self._live_keys & keys, self._type_0_keys & keys

    @property
    def live_keys(self) -> int:
        """Number of keys whose newest record has a value: the number of records after a perfect compaction."""
        return len(self._live_keys)

    def type_0_offsets(self) -> set[OffsetKey]:
        """(group_id, topic, partition) of the commits that are live in the log under a key of type 0."""
        fields = (decode_key(key).fields for key in self._type_0_keys)
        return {(key["group_id"], key["topic"], key["partition"]) for key in fields}

    @property
    def first_open_offset(self) -> int | None:
        """Record offset of the first record of the oldest open transaction; None: no transaction is open."""
        return min(self.open_since.values(), default=None)


def _values(decoded: DecodedChunk, is_redundant: Mask) -> list[Any]:
    """For each commit its StoredOffset, and for each group record its bytes, which are decoded when the record is applied.

    None for tombstones, and for records that are not applied.
    """
    records, key_type, is_data = decoded.records, decoded.kinds.key_type, ~decoded.kinds.is_control
    is_offset = (key_type >= 0) & (key_type < KeyType.GROUP_METADATA) & decoded.decodes & ~records.value.is_null
    rows = np.flatnonzero(is_offset & is_data)
    columns = decode_offset_value_columns(key_type[rows], records.value.take(rows))
    by_name = {
        **columns.fields,
        "value_version": columns.value_version,
        "producer_id": records.producer_id[rows],
        "producer_epoch": records.producer_epoch[rows],
        "record_offset": records.record_offset[rows],
        "record_timestamp_ms": records.timestamp_ms[rows],
    }
    stored = zip(*(by_name[name].tolist() for name in StoredOffset._fields), strict=True)
    of_groups = np.flatnonzero((key_type >= KeyType.GROUP_METADATA) & is_data & ~is_redundant)
    bytes_of_groups = records.value.take(of_groups).to_arrow().to_pylist()
    values: list[Any] = [None] * len(records)
    for row, value in chain(
        zip(rows.tolist(), map(StoredOffset._make, stored), strict=True), zip(of_groups.tolist(), bytes_of_groups, strict=True)
    ):
        values[row] = value
    return values
