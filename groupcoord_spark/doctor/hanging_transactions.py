"""Transactions without a marker: which of them are open, which hang, and how certain a log makes it.

A transaction hangs when the transaction coordinator has ended it, or never registered this partition: no marker will come. A producer has
one transaction at a time, and writes the next one only after the markers of the last one are in all partitions. The rules were verified on
4.3.1 brokers; the 15-minute rule is the one of ``kafka-transactions.sh find-hanging``.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from groupcoord_spark.log.broker_dir.transaction_states import KnownTransactions
from groupcoord_spark.protocol.record_types import NO_PRODUCER_EPOCH, NO_TIMESTAMP

FIND_HANGING_MS: Final = 15 * 60_000
"""Age that makes find-hanging query the coordinator, and the default of transaction.max.timeout.ms."""

MARKER_DELAY_MS: Final = 1_000
"""How long the markers of one transaction may take to all partitions, and a copy of a running broker may tear them apart."""


class Certainty(StrEnum):
    """How certain it is that a transaction hangs."""

    CERTAIN = "certain"
    """No working broker leaves the log like this, or the transaction coordinator's own log proves it."""
    LIKELY = "likely"
    """The transaction is older than any timeout allows, or the broker itself did not know it as open."""
    CANDIDATE = "candidate"
    """Old enough that find-hanging would ask the coordinator."""
    UNDECIDED = "not decidable"
    """Only the coordinator of transactions knows."""
    OPEN = "open"
    """The transaction coordinator's log contains the transaction."""
    OVERDUE = "overdue"
    """The transaction coordinator's log contains the transaction, and the timeout that its client requested is over."""


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """The records of a producer after its last marker in one partition.

    Attributes:
        first_offset, last_offset: of its batches. records, batches, bytes: of them, bytes as in the file.
        marker_epoch: the highest epoch of an earlier marker of the producer in this partition; -1 without one.
        batches_after, bytes_after: size of the log after its first batch.
        pending: (group id, topic, partition) of the offsets, in the order of the records.
        coordinator_epoch: from the newest snapshot that knows the producer; None: no snapshot does.
        in_no_snapshot: the offset of a valid snapshot after the transaction that does not list it as open, or None.
        is_cleaned_behind: records behind the segment of its first record are missing; the cleaner never passes an open transaction.
    """

    producer_id: int
    producer_epoch: int
    first_offset: int
    last_offset: int
    first_timestamp_ms: int
    last_timestamp_ms: int
    records: int
    batches: int
    bytes: int
    marker_epoch: int
    batches_after: int
    bytes_after: int
    pending: tuple[tuple[str, str, int], ...]
    coordinator_epoch: int | None = None
    in_no_snapshot: int | None = None
    is_cleaned_behind: bool = False

    @property
    def groups(self) -> tuple[str, ...]:
        """The groups with pending offsets, in the order of the records."""
        return tuple(dict.fromkeys(group for group, _, _ in self.pending))


@dataclass(frozen=True, slots=True)
class ProducerElsewhere:
    """What another offsets partition says of the producer of an open transaction.

    marker_offset, marker_timestamp_ms, marker_epoch, is_commit: its last marker there; -1 where it has none.
    highest_epoch: of its data there; -1 for none.
    """

    offsets_partition: int
    marker_offset: int
    marker_timestamp_ms: int
    marker_epoch: int
    is_commit: bool
    highest_epoch: int


@dataclass(frozen=True, slots=True)
class Judgement:
    """How certain it is that a transaction hangs, and why, in one clause."""

    certainty: Certainty
    reason: str

    @property
    def hangs(self) -> bool:
        """True if the transaction certainly or probably hangs."""
        return self.certainty in (Certainty.CERTAIN, Certainty.LIKELY)


def judge_by_log(
    transaction: OpenTransaction,
    elsewhere: Iterable[ProducerElsewhere],
    *,
    now_ms: int,
    newest_here_ms: int,
    max_timeout_ms: int = FIND_HANGING_MS,
) -> Judgement:
    """Judge how certain it is that an open transaction hangs.

    Args:
        elsewhere: the same producer in the other offsets partitions.
        now_ms: the moment of the dump.
        newest_here_ms: the newest timestamp of the transaction's own partition: what happened elsewhere after it may not be copied here.
        max_timeout_ms: transaction.max.timeout.ms of the brokers.
    """
    if transaction.marker_epoch > transaction.producer_epoch:
        reason = f"an earlier marker of the producer has epoch {transaction.marker_epoch}, and this transaction epoch"
        return Judgement(Certainty.CERTAIN, f"{reason} {transaction.producer_epoch}, which was fenced by then")
    for producer in elsewhere:
        if producer.highest_epoch > transaction.producer_epoch != NO_PRODUCER_EPOCH:
            reason = f"the producer went on with epoch {producer.highest_epoch} in offsets partition {producer.offsets_partition}"
            return Judgement(Certainty.CERTAIN, f"{reason}; this transaction has epoch {transaction.producer_epoch}")
        is_later = producer.marker_timestamp_ms > transaction.last_timestamp_ms != NO_TIMESTAMP
        if is_later and newest_here_ms >= producer.marker_timestamp_ms + MARKER_DELAY_MS:
            kind = "COMMIT" if producer.is_commit else "ABORT"
            reason = f"the producer's transaction ended by a later {kind} marker at offset {producer.marker_offset} of offsets partition"
            return Judgement(Certainty.CERTAIN, f"{reason} {producer.offsets_partition}, and no marker came here")
    age_ms = now_ms - transaction.last_timestamp_ms
    if age_ms > max_timeout_ms:
        return Judgement(
            Certainty.LIKELY, "its last record is older than transaction.max.timeout.ms, the longest timeout that a client may have"
        )
    if transaction.in_no_snapshot is not None:
        return Judgement(Certainty.LIKELY, f"the broker's snapshot at offset {transaction.in_no_snapshot} does not know it as open")
    if transaction.is_cleaned_behind:
        return Judgement(Certainty.LIKELY, "records behind it were cleaned away, and the cleaner never passes an open transaction")
    if age_ms > FIND_HANGING_MS:
        return Judgement(Certainty.CANDIDATE, "its last record is older than 15 minutes, so find-hanging would ask the coordinator")
    if transaction.marker_epoch == transaction.producer_epoch != NO_PRODUCER_EPOCH:
        return Judgement(
            Certainty.UNDECIDED, "the producer's next transaction and a commit that came late after its marker look the same in a log"
        )
    return Judgement(Certainty.UNDECIDED, "only the coordinator of transactions knows whether it is still to end")


def judge_by_coordinator(
    transaction: OpenTransaction, offsets_partition: int, coordinator: KnownTransactions, *, now_ms: int
) -> Judgement | None:
    """Judge an open transaction by the coordinator's own log. Return None if that log ends too early or is incomplete.

    now_ms: the moment of the dump.
    """
    state, newest_ms = coordinator.by_producer.get(transaction.producer_id), coordinator.newest_timestamp_ms
    if state is None:
        # the coordinator writes that a transaction begins before the transaction's first record
        if not coordinator.is_complete or not 0 <= transaction.first_timestamp_ms <= newest_ms:
            return None
        return Judgement(Certainty.CERTAIN, "the coordinator's log does not know the producer, so that find-hanging names the transaction")
    name = f"transactional id {state.transactional_id!r}"
    is_here = ("__consumer_offsets", offsets_partition) in state.partitions
    # The next markers may have a newer epoch: a fenced producer's, and since KIP-890 each transaction's.
    is_its_epoch = state.producer_epoch == transaction.producer_epoch or (
        state.state in _ENDING and state.producer_epoch > transaction.producer_epoch
    )
    is_its_state = is_here and is_its_epoch and state.start_timestamp_ms <= transaction.last_timestamp_ms
    is_unfinished = is_its_state and state.state in ("Ongoing", *_ENDING)
    # The coordinator's next record decides: after a begin perhaps minutes later, after an end at once.
    known_to_ms = transaction.first_timestamp_ms - MARKER_DELAY_MS if is_unfinished else transaction.last_timestamp_ms + MARKER_DELAY_MS
    if newest_ms < known_to_ms:
        return None
    if not is_unfinished:
        partitions = ", ".join(f"{topic}-{number}" for topic, number in state.partitions) or "no partition"
        reason = f"the coordinator has {name} in state {state.state}, epoch {state.producer_epoch}, with {partitions}"
        return Judgement(Certainty.CERTAIN, reason)
    if state.state == "Ongoing" and now_ms - state.start_timestamp_ms > state.timeout_ms:
        reason = f"the coordinator has {name} still in state Ongoing, and its timeout of {state.timeout_ms / 1000:g} s is over"
        return Judgement(Certainty.OVERDUE, reason)
    return Judgement(Certainty.OPEN, f"the coordinator has {name} in state {state.state}, and its timeout is {state.timeout_ms / 1000:g} s")


_ENDING: Final = ("PrepareCommit", "PrepareAbort", "PrepareEpochFence")
"""States of a transaction that has ended and whose markers have not been written yet."""
