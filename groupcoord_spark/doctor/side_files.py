"""Compare the side files with the segments. A file that does not fit is reported and not used."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from groupcoord_spark.doctor.facts import FilesBeside
from groupcoord_spark.doctor.hanging_transactions import OpenTransaction
from groupcoord_spark.log.broker_dir.broker_files import (
    CLEANER_CHECKPOINT,
    HIGH_WATERMARKS,
    LEADER_EPOCHS,
    LOG_STARTS,
    RECOVERY_POINTS,
    ProducerState,
)
from groupcoord_spark.protocol.slices import Ints

PRODUCER_EXPIRATION_MS: Final = 86_400_000
"""Default of producer.id.expiration.ms: after it the broker forgets a producer, and the cleaner may remove its last batch."""


@dataclass(frozen=True, slots=True)
class CheckedFiles:
    """The parts of the side files that fit the segments.

    transactions: with what the snapshots say of them. damages: sentences about files that are damaged or do not fit.
    """

    checkpoint: int | None
    high_watermark: int | None
    transactions: tuple[OpenTransaction, ...]
    damages: tuple[str, ...]


def checked_files(
    files: FilesBeside,
    offsets_partition: int,
    directory: str,
    bases: Sequence[int],
    log_end: int,
    producers_by_segment: Mapping[str, Ints],
    newest_timestamp_ms: int,
    transactions: tuple[OpenTransaction, ...],
    *,
    hole_end: int,
) -> CheckedFiles:
    """Return the contents of one partition's side files after checking them against its segments.

    Args:
        bases: base offsets of all segment files. log_end: the offset after the last record.
        producers_by_segment: the columns of ``ProducerTable.by_segment``.
        newest_timestamp_ms: of the partition. hole_end: no offset is missing from here on: the cleaner has removed nothing; -1 for none.
    """
    damages = list(files.partition.damages)
    log_dir = files.log_dir
    checkpoint = log_dir.offsets.get(CLEANER_CHECKPOINT, {}).get(offsets_partition)
    if checkpoint is not None and bases and (checkpoint > bases[-1] or (checkpoint > bases[0] and checkpoint not in bases)):
        damages.append(
            f"{CLEANER_CHECKPOINT} names offset {checkpoint} for partition {offsets_partition}, where no segment in {directory} begins:"
            " the file is of another moment or another directory, and is not used."
        )
        checkpoint = None
    checkpoints = (HIGH_WATERMARKS, RECOVERY_POINTS, LOG_STARTS)
    beyond = {name: log_dir.offsets.get(name, {}).get(offsets_partition) for name in checkpoints}
    for name, offset in beyond.items():
        if offset is not None and offset > log_end:
            damages.append(
                f"{name} names offset {offset} for partition {offsets_partition}, and the segments end at {log_end}:"
                " the file is of a later moment or another directory, and is not used."
            )
            beyond[name] = None
    epoch, begins = (files.partition.leader_epochs or ((0, 0),))[-1]
    if begins > log_end:
        damages.append(
            f"{directory}/{LEADER_EPOCHS} says that epoch {epoch} begins at offset {begins}, and the segments end at {log_end}: the file is"
            " of a later moment or another partition, and is not used."
        )
    high_watermark = beyond[HIGH_WATERMARKS]
    sound: dict[int, tuple[ProducerState, ...]] = {}
    for end_offset, states in sorted(files.partition.snapshots.items()):
        why = _why_snapshot_does_not_fit(end_offset, states, log_end, producers_by_segment, newest_timestamp_ms, hole_end)
        if why is not None:
            damages.append(f"{directory}/{end_offset:020}.snapshot does not fit the segments and is not used: {why}.")
        else:
            sound[end_offset] = states
    columns = (producers_by_segment[name].tolist() for name in ("producer_id", "segment_base", "marker_offset"))
    last_marker = {(producer_id, base): offset for producer_id, base, offset in zip(*columns, strict=True)}
    never_cleaned_from = 0 if hole_end < 0 else checkpoint
    for base, aborted in files.partition.transaction_indexes.items():
        if base not in bases or (aborted and aborted[-1].last_offset >= log_end):
            damages.append(f"{directory}/{base:020}.txnindex does not fit the segments and is not used: it is of another moment.")
        elif never_cleaned_from is not None and base >= never_cleaned_from:
            # where nothing is cleaned, every marker is still there
            unlike = [entry for entry in aborted if last_marker.get((entry.producer_id, base), -1) < entry.last_offset]
            if unlike:
                mismatch = f"producer {unlike[0].producer_id} has no marker at offset {unlike[0].last_offset}"
                damages.append(f"{directory}/{base:020}.txnindex does not fit the segments and is not used: {mismatch}.")
    with_snapshots = tuple(_with_snapshots(transaction, sound) for transaction in transactions)
    return CheckedFiles(checkpoint, high_watermark, with_snapshots, tuple(damages))


def _why_snapshot_does_not_fit(
    end_offset: int, states: Sequence[ProducerState], log_end: int, producers: Mapping[str, Ints], newest_timestamp_ms: int, hole_end: int
) -> str | None:
    """Return a clause about why the snapshot cannot belong to this log at this time, or None if it fits.

    The cleaner removes a producer's last batch once the broker remembers another one, or a marker with a newer epoch, or forgets the
    producer: below ``hole_end`` a missing batch proves nothing.
    """
    if end_offset > log_end:
        return f"it ends at offset {end_offset}, and the segments at {log_end}"
    state_of = {state.producer_id: state for state in states}
    last_before: dict[int, int] = {}
    last_of_all: dict[int, int] = {}
    columns = (producers["producer_id"], producers["segment_base"], producers["last_data_offset"])
    for producer_id, base, last_offset in zip(*(column.tolist() for column in columns), strict=True):
        last_of_all[producer_id] = max(last_of_all.get(producer_id, -1), last_offset)
        if base < end_offset and last_offset < end_offset:
            last_before[producer_id] = max(last_before.get(producer_id, -1), last_offset)
    for producer_id, last_offset in last_before.items():
        state = state_of.get(producer_id)
        # -1: an epoch has come with a marker, and the producer has not written with it yet
        if state is not None and 0 <= state.last_offset < last_offset:
            return f"producer {producer_id} wrote at offset {last_offset}, and the file says that its last offset was {state.last_offset}"
    for producer_id, state in state_of.items():
        is_recent = state.timestamp_ms > newest_timestamp_ms - PRODUCER_EXPIRATION_MS
        last_offset = last_of_all.get(producer_id, -1)
        if state.last_offset >= max(hole_end, 0) and is_recent and last_offset < state.last_offset:
            return f"producer {producer_id} wrote at offset {state.last_offset} by the file, and the segments do not have that batch"
    return None


def _with_snapshots(transaction: OpenTransaction, snapshots: Mapping[int, Sequence[ProducerState]]) -> OpenTransaction:
    """Return the transaction with the contents of the valid snapshots."""
    later_snapshots = {end: states for end, states in snapshots.items() if end > transaction.last_offset}
    in_no_snapshot = coordinator_epoch = None
    for end_offset, states in sorted(later_snapshots.items()):
        state = next((state for state in states if state.producer_id == transaction.producer_id), None)
        if state is None or state.transaction_first_offset < 0:
            in_no_snapshot = end_offset
        if state is not None:
            coordinator_epoch = state.coordinator_epoch
    return replace(transaction, in_no_snapshot=in_no_snapshot, coordinator_epoch=coordinator_epoch)
