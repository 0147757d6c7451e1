"""The newest value of each offset while the chunks of an offsets partition are read, and the changes that may be events."""

from collections.abc import Callable, Iterable, Mapping
from functools import cache, lru_cache
from types import ModuleType
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from groupcoord_spark.coordinator.offset_events import Before, Surroundings
from groupcoord_spark.coordinator.semantics import Semantics
from groupcoord_spark.pipeline.read import offset_loop as loop
from groupcoord_spark.pipeline.read.decode import DecodedChunk
from groupcoord_spark.protocol import decode_key, fast_path
from groupcoord_spark.protocol.columnar import OffsetValueColumns, decode_offset_value_columns
from groupcoord_spark.protocol.loop_cache import module_in_a_file
from groupcoord_spark.protocol.primitives import uuid_bytes
from groupcoord_spark.protocol.record_types import NO_LEADER_EPOCH, NO_PRODUCER_ID, KeyType, MarkerType
from groupcoord_spark.protocol.slices import Ints, Mask, codes_of

_NO_RECORD: Final = np.zeros(loop.KEY_COLUMNS, np.int64)
_NO_RECORD[[loop.COMMITTED, loop.RECORD, loop.EPOCH, loop.COMMIT_MS, loop.EXPIRE_MS, loop.BORN_MS]] = -1
_NO_RECORD[[loop.TOMBSTONE_AT, loop.SEEN_AT]] = -1
_MOST_TOPIC_IDS: Final = 10_000
"""Number of topic ids whose numbers are kept."""
_MIX: Final = np.int64(-7046029254386353131)


class OffsetValues(NamedTuple):
    """The decoded values of the offset commits of a chunk.

    rows: the commits and tombstones in the chunk. at: of each of them, its place in ``columns``; -1 for a tombstone.
    """

    rows: Ints
    at: Ints
    columns: OffsetValueColumns

    @classmethod
    def of(cls, rows: Ints, decoded: DecodedChunk) -> "OffsetValues":
        """Decode the values of some offset records."""
        values = decoded.records.value.take(rows)
        kept = np.flatnonzero(~values.is_null)
        at = np.full(len(rows), -1, np.int64)
        at[kept] = np.arange(len(kept))
        return cls(rows, at, decode_offset_value_columns(decoded.kinds.key_type[rows][kept], values.take(kept)))


class OffsetName(NamedTuple):
    """The key of a committed offset."""

    group_id: str
    topic: str
    partition: int


class OffsetTable:
    """The offsets of one offsets partition, or of a part of it, by number. The columns of ``rows`` are those of ``offset_loop``."""

    def __init__(self, semantics: Semantics, surroundings: Surroundings) -> None:
        self._semantics = semantics
        starts = {place: start for place, (start, _) in surroundings.log_extents.items() if start}
        self._starts: Mapping[tuple[str, int], int] = starts
        self._topics_with_start = pa.array(sorted({topic for topic, _ in starts}), pa.string())
        self._number_of: dict[bytes, int] = {}
        self._keys: list[bytes] = []
        self._names: dict[int, OffsetName] = {}
        """Of the offsets that had changes."""
        self._group_of: dict[str, int] = {}
        self._topic_of: dict[str, int] = {}
        self._producer_of: dict[int, int] = {}
        self.rows = np.tile(_NO_RECORD, (1, 1))
        self._members, self._period = np.zeros(1, np.int64), np.zeros(1, np.int64)
        self._staged = np.zeros((1, loop.STAGED_COLUMNS), np.int64)
        self._heads, self._seen = np.full(1, -1, np.int64), np.zeros(1, np.int64)
        self._counters = np.array([0, -1, 0], np.int64)
        self._flags = loop.LATER_MARKER_WINS * semantics.later_marker_wins
        self._flags |= loop.TOMBSTONE_DROPS_STAGED * semantics.tombstone_drops_pending

    def find(self, decoded: DecodedChunk, values: OffsetValues, is_wanted: Mask, flags: int) -> npt.NDArray[np.int64]:
        """Return the changes of a chunk that may be events, in the columns of ``offset_loop``.

        Args:
            decoded: The chunk.
            values: Of all offset records that are wanted.
            is_wanted: bool[n], the records to look at.
            flags: Of ``offset_loop``.
        """
        kinds = decoded.kinds
        is_offset = (kinds.key_type >= 0) & (kinds.key_type < KeyType.GROUP_METADATA) & kinds.coordinator_accepts & ~kinds.is_control
        is_group = (kinds.key_type >= KeyType.GROUP_METADATA) & kinds.coordinator_accepts & ~kinds.is_control
        is_marker = kinds.is_control & ((kinds.control_type == MarkerType.COMMIT) | (kinds.control_type == MarkerType.ABORT))
        has_producer = kinds.producer_id != NO_PRODUCER_ID
        is_staged = has_producer if self._semantics.producer_id_means_transaction else kinds.is_transactional
        # The Scala coordinator removes the producer's own commit by a tombstone in a transaction; no broker writes one.
        is_offset &= ~(kinds.is_tombstone & is_staged) | (not self._semantics.transactional_tombstone_drops_own)
        rows = np.flatnonzero(is_wanted & (is_offset | is_group | is_marker))
        if not len(rows):
            return np.zeros((0, loop.CHANGE_COLUMNS), np.int64)
        kind = np.where(is_staged[rows], loop.STAGED, loop.PLAIN)
        kind[kinds.is_tombstone[rows]] = loop.TOMBSTONE
        kind[is_group[rows]] = loop.GROUP_RECORD
        kind[is_marker[rows]] = loop.ABORT_MARKER
        kind[is_marker[rows] & (kinds.control_type[rows] == MarkerType.COMMIT)] = loop.COMMIT_MARKER
        key_of_code, group_of_code = self._numbers(decoded)
        code = kinds.key_code[rows]
        key = np.where(kind == loop.GROUP_RECORD, group_of_code[code], key_of_code[code])
        value = np.full(len(kinds), -1, np.int64)
        value[values.rows] = values.at
        fields = values.columns.fields
        of_values = _topics_of_kept(values) if flags & loop.IS_RECALL else _topics_of(decoded)[values.rows[values.at >= 0]]
        numbers = ("committed_offset", "leader_epoch", "commit_timestamp_ms", "expire_timestamp_ms")
        columns = [np.ascontiguousarray(fields[name], np.int64) for name in numbers]
        producer_id = kinds.producer_id[rows]
        producer = self._producers(producer_id, (kind == loop.STAGED) | (kind >= loop.COMMIT_MARKER) & (kind <= loop.ABORT_MARKER))
        staged = int(np.count_nonzero(kind == loop.STAGED))
        most = len(rows) + staged + int(self._counters[loop.USED])
        self._grow_staged(staged)
        changes = np.empty((most, loop.CHANGE_COLUMNS), np.int64)
        self._counters[loop.FILLED] = 0
        of_rows = kind, key, decoded.records.record_offset[rows], decoded.records.timestamp_ms[rows], value[rows]
        tables = self.rows, self._members, self._period, self._staged, self._heads, self._seen, self._counters, changes
        _loop_for(len(rows))(*of_rows, *columns, of_values, producer, producer_id, self._flags | flags, *tables)
        found = changes[: self._counters[loop.FILLED]].copy()
        has_row = found[:, loop.O_ROW] >= 0
        found[has_row, loop.O_ROW] = rows[found[has_row, loop.O_ROW]]
        return _without_plain_restarts(found, decoded.records.timestamp_ms[rows[[0, -1]]])

    def name(self, number: int) -> OffsetName:
        """Return the key of an offset."""
        if (name := self._names.get(number)) is None:
            fields = decode_key(b"\x00\x01" + self._keys[number]).fields
            name = self._names[number] = OffsetName(fields["group_id"], fields["topic"], fields["partition"])
        return name

    def number(self, name_of_key: bytes) -> int:
        """Return the number of an offset, which is a new one where it is not known. name_of_key: the key without its type."""
        number = self._number_of.setdefault(name_of_key, len(self._keys))
        if number == len(self._keys):
            self._keys.append(name_of_key)
            self._grow_keys()
            group_id, topic, _ = self.name(number)
            self.rows[number, loop.GROUP] = self._group_of.setdefault(group_id, len(self._group_of))
            self.rows[number, loop.TOPIC_NAME] = self._topic_of.setdefault(topic, len(self._topic_of))
        return number

    def key(self, number: int) -> bytes:
        """Return the key of an offset without its type."""
        return self._keys[number]

    def set_members(self, groups: Iterable[tuple[str, bool]]) -> None:
        """Note which of these groups have members."""
        for group_id, has_members in groups:
            if (number := self._group_of.get(group_id)) is not None:
                self._members[number] = loop.HAS_MEMBERS if has_members else 0

    def births(self) -> dict[str, int]:
        """Return for each topic the time of the oldest first commit among its offsets that are there, in milliseconds."""
        rows = self.rows[: len(self._keys)]
        rows = rows[rows[:, loop.STATE] == loop.LIVE]
        oldest = np.full(len(self._topic_of), np.iinfo(np.int64).max)
        np.minimum.at(oldest, rows[:, loop.TOPIC_NAME], rows[:, loop.BORN_MS])
        named = zip(self._topic_of, oldest.tolist(), strict=True)
        return {topic: born_ms for topic, born_ms in named if born_ms != np.iinfo(np.int64).max}

    def __len__(self) -> int:
        return len(self._keys)

    def last_rows(self) -> Iterable[tuple[bytes, list[int]]]:
        """Yield the key and the columns of each offset whose state is known."""
        known = np.flatnonzero(self.rows[: len(self._keys), loop.STATE] != loop.UNKNOWN)
        return ((self._keys[number], row) for number, row in zip(known.tolist(), self.rows[known].tolist(), strict=True))

    def staged_rows(self) -> Iterable[list[int]]:
        """Return the columns of each commit in an open transaction, in the order of the log."""
        rows = []
        for head in self._heads[self._heads >= 0].tolist():
            while head >= 0:
                rows.append(self._staged[head].tolist())
                head = int(self._staged[head, loop.NEXT])
        return sorted(rows, key=lambda row: row[loop.S_RECORD])

    def _numbers(self, decoded: DecodedChunk) -> tuple[Ints, Ints]:
        """Return the offset and the group of each key of the chunk; the last place is for no key."""
        keys = decoded.keys
        encoded = keys.group_id.dictionary_encode()
        groups = [self._group_of.setdefault(group_id, len(self._group_of)) for group_id in encoded.dictionary.to_pylist()]
        group_of_code = np.append(np.array([*groups, -1], np.int64)[codes_of(encoded)], -1)
        self._members, self._period = (_grown(column, len(self._group_of), 0) for column in (self._members, self._period))
        is_offset = (keys.key_type >= 0) & (keys.key_type < KeyType.GROUP_METADATA) & keys.ok
        places = np.flatnonzero(is_offset)
        before, number_of = len(self._keys), self._number_of
        names = [key[2:] for key in decoded.names.keys.take(pa.array(places)).to_pylist()]
        numbers = np.array([number_of.setdefault(name, len(number_of)) for name in names], np.int64)
        key_of_code = np.full(len(is_offset) + 1, -1, np.int64)
        key_of_code[places] = numbers
        if len(number_of) > before:
            self._keys.extend([*number_of][before:])
            self._grow_keys()
            is_new = numbers >= before
            new, at = numbers[is_new], places[is_new]
            self.rows[new, loop.GROUP] = group_of_code[at]
            topics = keys.topic.take(pa.array(at)).dictionary_encode()
            of_topics = [self._topic_of.setdefault(topic, len(self._topic_of)) for topic in topics.dictionary.to_pylist()]
            self.rows[new, loop.TOPIC_NAME] = np.array(of_topics, np.int64)[codes_of(topics)]
            if self._starts:
                has_start = np.flatnonzero(pc.is_in(keys.topic.take(pa.array(at)), self._topics_with_start).to_numpy(zero_copy_only=False))
                names_of = keys.topic.take(pa.array(at[has_start])).to_pylist()
                partitions = keys.partition[at[has_start]].tolist()
                starts = [self._starts.get(place, 0) for place in zip(names_of, partitions, strict=True)]
                self.rows[new[has_start], loop.LOG_START] = starts
        return key_of_code, group_of_code

    def _producers(self, producer_id: Ints, is_transactional: Mask) -> Ints:
        """Return the row of each producer in the tables of open transactions, 0 for a record outside of one."""
        producer = np.zeros(len(producer_id), np.int64)
        rows = np.flatnonzero(is_transactional)
        if len(rows):
            distinct, code = np.unique(producer_id[rows], return_inverse=True)
            numbers = [self._producer_of.setdefault(number, len(self._producer_of)) for number in distinct.tolist()]
            producer[rows] = np.array(numbers, np.int64)[code]
            self._heads, self._seen = _grown(self._heads, len(self._producer_of), -1), _grown(self._seen, len(self._producer_of), 0)
        return producer

    def _grow_keys(self) -> None:
        if len(self._keys) > len(self.rows):
            self.rows = np.concatenate((self.rows, np.tile(_NO_RECORD, (max(len(self._keys), len(self.rows)), 1))))

    def _grow_staged(self, count: int) -> None:
        needed = int(self._counters[loop.USED]) + count
        if needed > len(self._staged):
            more = np.zeros((max(needed, 2 * len(self._staged)) - len(self._staged), loop.STAGED_COLUMNS), np.int64)
            self._staged = np.concatenate((self._staged, more))


def _without_plain_restarts(changes: Ints, border_ms: Ints) -> Ints:
    """Return the changes without the commits after a tombstone that are not events, unless others of the same write make them one.

    Such a commit is higher than the offset that was removed, and its position was read to. border_ms: the times of writes of which the
    chunks before and after may have records.
    """
    is_restart = (changes[:, loop.OP] == loop.COMMITTED_OP) & (changes[:, loop.B_STATE] == loop.GONE) & (changes[:, loop.B_RECORD] >= 0)
    is_restart &= (changes[:, loop.O_COMMITTED] > changes[:, loop.B_COMMITTED]) & (changes[:, loop.O_EPOCH] != NO_LEADER_EPOCH)
    at_ms = changes[:, loop.O_AT_MS]
    found: Ints = changes[~is_restart | np.isin(at_ms, np.append(at_ms[~is_restart], border_ms))]
    return found


def _topics_of(decoded: DecodedChunk) -> Ints:
    """Return the number of each record's topic id, 0 for none."""
    topics = np.zeros(len(decoded.kinds), np.int64)
    row, high, low = decoded.topic_ids
    topics[row] = high ^ (low * _MIX)
    return topics


def _topics_of_kept(values: OffsetValues) -> Ints:
    """Return the number of the topic id in each value; nobody has searched kept records for ids."""
    topic_ids: Any = values.columns.fields["topic_id"]
    encoded = topic_ids.dictionary_encode()
    numbers = [hash_of_topic(topic_id) for topic_id in encoded.dictionary.to_pylist()]
    return np.array([*numbers, 0], np.int64)[codes_of(encoded)]


def before_of(row: list[int]) -> Before:
    """Return the value before, from columns of ``offset_loop`` that begin with COMMITTED."""
    committed, record, epoch, commit_ms, expire_ms, topic, born_ms = row
    return Before(committed, record, epoch, commit_ms, expire_ms, topic, born_ms)


@lru_cache(_MOST_TOPIC_IDS)
def hash_of_topic(topic_id: str) -> int:
    """Return the number that stands for a topic id in the columns of ``offset_loop``."""
    high, low = np.frombuffer(uuid_bytes(topic_id), ">i8").astype(np.int64)
    with np.errstate(over="ignore"):
        return int(high ^ (low * _MIX))


def _grown(column: Ints, size: int, value: int) -> Ints:
    if size <= len(column):
        return column
    return np.concatenate((column, np.full(max(size, 2 * len(column)) - len(column), value, np.int64)))


def _loop_for(rows: int) -> Callable[..., None]:
    """Return the loop over ``rows`` records, compiled if the decoding kernels are."""
    loops = fast_path.loops_for(rows)
    return loop.find_changes if loops is None else _compiled(loops)


@cache
def _compiled(loops: ModuleType) -> Callable[..., None]:
    numbers, table, filled = loops.NUMBERS, loops.TABLE_OUT, loops.NUMBERS_OUT
    signature = loops.types.void(*[numbers] * 12, loops.types.int64, table, filled, filled, table, filled, filled, filled, table)
    compiled: Callable[..., None] = loops.compiled(signature)(module_in_a_file(loop.find_changes.__module__).find_changes)
    return compiled
