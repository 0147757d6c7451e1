"""What earlier runs carried on, compared with a log that is read as a whole: the state of the groups, and the live keys."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from groupcoord_spark.coordinator.groups.classic import ReplayedClassicGroup
from groupcoord_spark.coordinator.state import LoadWarning
from groupcoord_spark.log import ChangedFiles, read_segment
from groupcoord_spark.pipeline.exchange.kept_records import records_of_kept
from groupcoord_spark.pipeline.exchange.state_rows import VanishedKeys
from groupcoord_spark.pipeline.replay.kept_records_replay import KeptRecordsReplay
from groupcoord_spark.protocol.definition import decode_key
from groupcoord_spark.protocol.errors import DecodeError
from groupcoord_spark.protocol.record_types import NO_PRODUCER_ID, NOT_A_CONTROL_RECORD, KeyType
from groupcoord_spark.wording import counted, first_of

_GROUPS_NAMED = 5

PendingByGroup = dict[str, dict[tuple[str, int], object]]
"""group_id -> (topic, partition) -> the offsets that open transactions hold back, by producer id."""


def pending_by_group(replay: KeptRecordsReplay) -> PendingByGroup:
    """Return the pending offsets of the replay."""
    by_group: PendingByGroup = {}
    for (group_id, topic, partition), by_producer in replay.coordinator.offsets.pending.items():
        by_group.setdefault(group_id, {})[topic, partition] = by_producer
    return by_group


def state_of_group(replay: KeptRecordsReplay, group_id: str, pending: PendingByGroup) -> tuple[object, ...]:
    """Everything about a group that a later record can meet or a row of a table can show."""
    coordinator = replay.coordinator
    group = coordinator.group(group_id)
    committed, staged = coordinator.offsets.committed.get(group_id, {}), pending.get(group_id, {})
    # Java: where neither the group nor an offset is left, nothing names the tombstone any more.
    is_gone = group is None and not committed and not staged and replay.semantics.groups_live_from_first_commit
    removed_at = None if is_gone else coordinator.removed_at(group_id)
    left_open = coordinator.offsets.producers_left_open(group_id)
    return None if group is None else group.internal_state(), committed, staged, left_open, removed_at


class CarriedStateComparison:
    """State carried over from earlier runs, compared with the state that this run reads from the beginning of the log."""

    def __init__(self, carried: KeptRecordsReplay, end_offset: int) -> None:
        """carried: the replay of the latest records of the earlier run. end_offset: of the first record after them."""
        self._end_offset = end_offset
        self._carried = carried

    def see(self, batch: pa.RecordBatch) -> None:
        """Replay the records of a batch of KEPT that the earlier run has not read."""
        later = batch.filter(pc.greater_equal(batch.column("record_offset"), self._end_offset))
        if later.num_rows:
            self._carried.apply(later)

    def differences(self, read: KeptRecordsReplay) -> list[LoadWarning]:
        """Return a warning for each group whose carried state differs from its state in ``read``."""
        both = (self._carried, read)
        pending = [pending_by_group(replay) for replay in both]
        group_ids = {group_id for replay in both for group_id in (*replay.coordinator.group_ids(), *replay.coordinator.offsets.committed)}
        warnings = []
        for group_id in sorted(group_ids.union(*pending)):
            # Without the last part: compaction may have removed the tombstone that a warning about the group names.
            carried, is_read = (state_of_group(replay, group_id, of)[:-1] for replay, of in zip(both, pending, strict=True))
            if carried != is_read:
                was, is_now = (_in_words(replay, group_id, of) for replay, of in zip(both, pending, strict=True))
                where = "" if was != is_now else ", with other contents"
                detail = f"The earlier runs carried on {was}; the log, read from its beginning, gives {is_now}{where}."
                warnings.append(LoadWarning(None, group_id, "carried_state_differs", f"{detail} The tables have what the log gives."))
        return warnings


class LiveKeys:
    """The live keys of an earlier run, until the record that made each live, a later one or a tombstone is read: one of them must be there.

    The log cleaner keeps the last record of a key, and a tombstone for ``delete.retention.ms`` at least. It removes records of aborted
    transactions at once, so a key is live by a record that counts.
    """

    def __init__(self, latest: pa.RecordBatch, replayed: Callable[[], KeptRecordsReplay], changed: ChangedFiles | None = None) -> None:
        """latest: the latest records of the earlier run. replayed: gives their replay, where a transaction makes the state matter.

        ``changed``: only keys whose live record is in these files must be present. Their present contents are read at once, and the rest of
        the log if keys are missing, because the coordinator may reject a later record, which then leaves no trace in the latest records.
        Raises InputError if a file cannot be read, also if the cleaner has replaced it meanwhile.
        """
        records, _ = records_of_kept(latest)
        is_data = (records.control_type == NOT_A_CONTROL_RECORD) & ~records.key.is_null
        in_transaction = records.is_transactional | (records.producer_id != NO_PRODUCER_ID)
        if (is_data & in_transaction).any():
            committed = replayed().coordinator.offsets.committed
            counts = [stored.record_offset for by_partition in committed.values() for stored in by_partition.values()]
            is_data &= ~in_transaction | records.value.is_null | np.isin(records.record_offset, counts)
        rows = np.flatnonzero(is_data)
        key_code, keys = records.take(is_data).distinct_keys()
        last = np.zeros(len(keys), np.int64)
        last[key_code] = rows  # numpy keeps the last assignment to a position
        last = np.sort(last[~records.value.is_null[last]])
        self._offsets = records.record_offset[last]
        self._keys = records.key.take(last).to_arrow()
        self._unseen = np.arange(len(last))
        self._is_kept = changed is not None
        if changed is not None:
            in_changed = [(self._offsets >= first) & (self._offsets < end) for first, end in changed.ranges]
            self._unseen = np.flatnonzero(np.logical_or.reduce(in_changed))
            for segment in (*changed.segments, *changed.log):
                for chunk in read_segment(segment) if len(self._unseen) else ():
                    self.see(chunk.records.key.to_arrow(), chunk.records.record_offset)

    def see(self, keys: pa.Array, record_offsets: npt.NDArray[np.int64]) -> None:
        """Take records of the later log, in the order of their offsets, as there."""
        if len(self._unseen) and len(keys):
            backwards = np.arange(len(keys))[::-1]
            # the first place in the reverse order is the last record of a key
            place = pc.index_in(self._keys.take(pa.array(self._unseen)), value_set=keys.take(pa.array(backwards)))
            place = place.fill_null(-1).to_numpy()
            last = np.where(place < 0, -1, record_offsets[backwards[place]])
            self._unseen = self._unseen[last < self._offsets[self._unseen]]

    def vanished(self, read: KeptRecordsReplay) -> VanishedKeys | None:
        """Return the keys that were not seen, or None if all were. ``read`` is the replay of the later log.

        A group that was converted to another kind has shed the keys of the former kind: no tombstone of theirs is missed.
        """
        key_of = {row: self._key(row) for row in self._unseen.tolist()}
        self._unseen = self._unseen[[not _is_of_former_kind(*key, read) for key in key_of.values()]] if key_of else self._unseen
        if not len(self._unseen):
            return None
        run_begins = np.flatnonzero(np.diff(self._unseen, prepend=-2) > 1)
        runs = np.split(self._unseen, run_begins[1:])
        longest = max(runs, key=len)
        groups = dict.fromkeys(repr(key_of[row][1]) for row in self._unseen.tolist() if key_of[row][1])
        return VanishedKeys(
            keys=len(self._unseen),
            live_keys=len(self._offsets),
            groups=first_of(list(groups), _GROUPS_NAMED) or "no group",
            first_offset=int(self._offsets[self._unseen[0]]),
            last_offset=int(self._offsets[self._unseen[-1]]),
            run=(int(self._offsets[longest[0]]), int(self._offsets[longest[-1]])),
            groups_in_run=len({key_of[row][1] for row in longest.tolist()}),
            is_kept=self._is_kept,
        )

    def _key(self, row: int) -> tuple[int, str]:
        """Return type and group id of a key, or -1 and no group for an unreadable key."""
        try:
            key = decode_key(self._keys[row].as_py())
            return key.key_type, key.fields["group_id"]
        except (DecodeError, KeyError):
            return -1, ""


def _is_of_former_kind(key_type: int, group_id: str, read: KeptRecordsReplay) -> bool:
    """Return whether the key belongs to another group type than the group that has the id now."""
    group = read.coordinator.group(group_id)
    if group is None or key_type < KeyType.GROUP_METADATA:
        return False
    return isinstance(group, ReplayedClassicGroup) != (key_type == KeyType.GROUP_METADATA)


def _in_words(replay: KeptRecordsReplay, group_id: str, pending: PendingByGroup) -> str:
    group = replay.coordinator.group(group_id)
    kind = "no group"
    if group is not None:
        kind = f"a {group.group_type} group of generation {group.generation} with {counted(group.member_count, 'member')}"
    committed, staged = len(replay.coordinator.offsets.committed.get(group_id, ())), len(pending.get(group_id, ()))
    return f"{kind}, {committed} committed and {staged} pending offsets"
