"""The state of groups in two replays, compared: the one that earlier runs carried on, and the one that a log read as a whole gives."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from groupcoord_spark.coordinator.semantics import Semantics
from groupcoord_spark.coordinator.state import LoadWarning
from groupcoord_spark.pipeline.exchange.kept_records import batches_of_size
from groupcoord_spark.pipeline.replay.kept_records_replay import REPLAYED_AT_ONCE_BYTES, KeptRecordsReplay

PendingByGroup = dict[str, dict[tuple[str, int], object]]
"""group_id -> (topic, partition) -> the offsets that open transactions hold back, by producer id."""


def pending_by_group(replay: KeptRecordsReplay) -> PendingByGroup:
    """The pending offsets of the replay."""
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
    return None if group is None else group.internal_state(), committed, staged, removed_at


class CarriedStateComparison:
    """The state that earlier runs carried on, replayed beside the state that this run reads from the beginning of the log."""

    def __init__(self, latest: pa.RecordBatch, end_offset: int, semantics: Semantics) -> None:
        """latest: the latest records of the earlier run. end_offset: of the first record after them."""
        self._end_offset = end_offset
        self._carried = KeptRecordsReplay(semantics)
        for part in batches_of_size([latest], REPLAYED_AT_ONCE_BYTES):
            self._carried.apply(part)

    def apply(self, batch: pa.RecordBatch) -> None:
        """Replay the records of a batch of KEPT that the earlier run has not read."""
        later = batch.filter(pc.greater_equal(batch.column("record_offset"), self._end_offset))
        if later.num_rows:
            self._carried.apply(later)

    def differences(self, read: KeptRecordsReplay) -> list[LoadWarning]:
        """A warning for each group whose carried state is another one than its state in ``read``."""
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
                detail = f"The nights before carried on {was}; the log, read from its beginning, gives {is_now}{where}. The latter stands."
                warnings.append(LoadWarning(None, group_id, "carried_state_differs", detail))
        return warnings


def _in_words(replay: KeptRecordsReplay, group_id: str, pending: PendingByGroup) -> str:
    group = replay.coordinator.group(group_id)
    kind = "no group" if group is None else f"a {group.group_type} group of generation {group.generation} with {group.member_count} members"
    committed, staged = len(replay.coordinator.offsets.committed.get(group_id, ())), len(pending.get(group_id, ()))
    return f"{kind}, {committed} committed and {staged} pending offsets"
