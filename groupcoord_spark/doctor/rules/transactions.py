"""Open transactions: which hang, which are overdue, and what they hold back."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

from groupcoord_spark.doctor.findings import Finding, FindingKind, Severity, age, bytes_of, size
from groupcoord_spark.doctor.hanging_transactions import (
    Certainty,
    Judgement,
    OpenTransaction,
    ProducerElsewhere,
    judge_by_coordinator,
    judge_by_log,
)
from groupcoord_spark.doctor.patient import Patient
from groupcoord_spark.protocol.record_types import MarkerType
from groupcoord_spark.wording import counted

HANGING: Final = FindingKind(
    "hanging_transaction", Severity.SICK, "hanging", "A transaction that will get no marker; its offsets stay pending for ever."
)
OVERDUE: Final = FindingKind(
    "open_transaction_overdue",
    Severity.SICK,
    "overdue",
    "The coordinator still knows the transaction, but its timeout is over: it should have been aborted.",
)
BLOCKED: Final = FindingKind(
    "cleaning_blocked_by_open_transaction",
    Severity.SICK,
    "blocked",
    "The cleaner cannot pass the segment where the oldest open transaction begins. No metric of the broker shows it.",
)
OPEN: Final = FindingKind(
    "open_transaction", Severity.WATCH, "open", "A transaction without a marker; only the coordinator knows whether it hangs."
)
YOUNG: Final = FindingKind("open_transaction_young", Severity.NORMAL, "young", "A transaction that began a short time ago.")

SEGMENTS_HELD_BACK: Final = 2
"""A transaction that is young and ordinary does not see this many segments fill while the cleaner waits in front of it."""


def of_transactions(patient: Patient) -> Iterator[Finding]:
    """Findings about the transactions without a marker."""
    judged = [(transaction, _judged(patient, transaction)) for transaction in patient.facts.open_transactions]
    yield from _blocked_cleaning(patient, judged)
    for transaction, judgement in judged:
        yield _transaction(patient, transaction, judgement)


def _judged(patient: Patient, transaction: OpenTransaction) -> Judgement:
    judgement = judge_by_coordinator(transaction, patient.facts.offsets_partition, patient.transaction_states, now_ms=patient.dump_ms)
    return judgement if judgement is not None else _judged_by_log(patient, transaction)


def _judged_by_log(patient: Patient, transaction: OpenTransaction) -> Judgement:
    facts = patient.facts
    return judge_by_log(
        transaction,
        _elsewhere(patient, transaction.producer_id),
        now_ms=patient.dump_ms,
        newest_here_ms=facts.newest_timestamp_ms,
        max_timeout_ms=patient.settings.transaction_max_timeout_ms,
    )


def _elsewhere(patient: Patient, producer_id: int) -> list[ProducerElsewhere]:
    """Return the producer in the other offsets partitions of all copies."""
    producers_elsewhere = []
    for copy in patient.copies:
        for partition in copy.partitions:
            producers = partition.producers
            place = int(producers.producer_id.searchsorted(producer_id))
            is_there = place < len(producers.producer_id) and producers.producer_id[place] == producer_id
            if partition.offsets_partition != patient.facts.offsets_partition and is_there:
                producers_elsewhere.append(
                    ProducerElsewhere(
                        partition.offsets_partition,
                        int(producers.marker_offset[place]),
                        int(producers.marker_timestamp_ms[place]),
                        int(producers.marker_epoch[place]),
                        bool(producers.marker_type[place] == MarkerType.COMMIT),
                        int(producers.highest_epoch[place]),
                    )
                )
    return producers_elsewhere


def _holds_back(patient: Patient, transaction: OpenTransaction) -> bool:
    """True where the cleaner waits at a segment with an open transaction, and many closed segments lie at or behind this one's."""
    facts = patient.facts
    base = max((segment.base_offset for segment in facts.segments if segment.base_offset <= transaction.first_offset), default=0)
    behind = sum(base <= segment.base_offset < facts.active_segment_base for segment in facts.segments)
    return facts.checkpoint == patient.first_uncleanable and behind >= SEGMENTS_HELD_BACK


def _blocked_cleaning(patient: Patient, judged: Sequence[tuple[OpenTransaction, Judgement]]) -> Iterator[Finding]:
    facts = patient.facts
    blocking = [
        (open_transaction, judgement) for open_transaction, judgement in judged if open_transaction.first_offset == facts.last_stable_offset
    ]
    if not blocking or not patient.blocked:
        return
    is_old = any(judgement.hangs or judgement.certainty is Certainty.CANDIDATE for _, judgement in blocking)
    transaction, judgement = blocking[0]
    if not is_old and not _holds_back(patient, transaction):
        return
    blocked_bytes = bytes_of(patient.blocked)
    summary = (
        f"The transaction of producer {transaction.producer_id}, open since offset {transaction.first_offset}, holds back"
        f" {size(blocked_bytes)} in {counted(len(patient.blocked), 'closed segment')} of {size(facts.log_bytes)}."
    )
    evidence = {**patient.figures, "blocking_producers": [open_transaction.producer_id for open_transaction, _ in blocking]}
    remedy, ask = _remedy(patient, transaction, judgement)
    yield patient.finding(BLOCKED, summary, remedy, subject=transaction.producer_id, evidence=evidence, ask=ask)


def _transaction(patient: Patient, transaction: OpenTransaction, judgement: Judgement) -> Finding:
    facts = patient.facts
    age_ms = max(patient.dump_ms - transaction.last_timestamp_ms, 0)
    elsewhere = _elsewhere(patient, transaction.producer_id)
    later_markers = [
        {
            "partition": producer.offsets_partition,
            "offset": producer.marker_offset,
            "timestamp_ms": producer.marker_timestamp_ms,
            "kind": "COMMIT" if producer.is_commit else "ABORT",
            "producer_epoch": producer.marker_epoch,
        }
        for producer in elsewhere
        if producer.marker_offset >= 0 and producer.marker_timestamp_ms > transaction.last_timestamp_ms
    ]
    evidence: dict[str, Any] = {
        "producer_id": transaction.producer_id,
        "producer_epoch": transaction.producer_epoch,
        "coordinator_epoch": transaction.coordinator_epoch,
        "first_offset": transaction.first_offset,
        "last_offset": transaction.last_offset,
        "first_record_timestamp_ms": transaction.first_timestamp_ms,
        "last_record_timestamp_ms": transaction.last_timestamp_ms,
        "age_ms": age_ms,
        "records": transaction.records,
        "batches": transaction.batches,
        "bytes": transaction.bytes,
        "group": transaction.groups[0] if transaction.groups else None,
        "unstable": [list(offset) for offset in transaction.pending],
        "is_last_stable_offset": transaction.first_offset == facts.last_stable_offset,
        "highest_marker_epoch": transaction.marker_epoch,
        "in_no_snapshot": transaction.in_no_snapshot,
        "is_cleaned_behind": transaction.is_cleaned_behind,
        "batches_after_first_offset": transaction.batches_after,
        "bytes_after_first_offset": transaction.bytes_after,
        "later_markers_of_producer_elsewhere": later_markers,
        "newest_epoch_of_producer_in_dump": max(
            [transaction.producer_epoch, *(max(producer.highest_epoch, producer.marker_epoch) for producer in elsewhere)]
        ),
        "dump_alone_proves_hanging": _judged_by_log(patient, transaction).certainty is Certainty.CERTAIN,
    }
    groups = ", ".join(transaction.groups) or "no group"
    pending = counted(transaction.records, "pending offset")
    begin = f"Producer {transaction.producer_id}, epoch {transaction.producer_epoch}, has {pending} of {groups}"
    summary = f"{begin} for {age(age_ms)}, from offset {transaction.first_offset} on: {judgement.reason}."
    state = patient.transaction_states.by_producer.get(transaction.producer_id)
    if state is not None:
        evidence["transactional_id"] = state.transactional_id
        evidence["coordinator"] = {
            "transactional_id": state.transactional_id,
            "state": state.state,
            "producer_epoch": state.producer_epoch,
            "timeout_ms": state.timeout_ms,
            "start_time_ms": state.start_timestamp_ms,
            "partitions": [f"{topic}-{number}" for topic, number in state.partitions],
        }
    if judgement.hangs:
        kind = HANGING
    elif judgement.certainty is Certainty.OVERDUE:
        kind = OVERDUE
    elif judgement.certainty is Certainty.CANDIDATE or _holds_back(patient, transaction):
        kind = OPEN
    else:
        kind = YOUNG
    remedy, ask = _remedy(patient, transaction, judgement)
    if kind is YOUNG:
        remedy, ask = "None: its client ends it, or the coordinator does after the client's transaction.timeout.ms.", None
    certainty = str(judgement.certainty)
    return patient.finding(kind, summary, remedy, subject=transaction.producer_id, evidence=evidence, certainty=certainty, ask=ask)


def _remedy(patient: Patient, transaction: OpenTransaction, judgement: Judgement) -> tuple[str, str | None]:
    """Return how to end the transaction, and the question to the broker if the log does not decide."""
    if judgement.certainty in (Certainty.OPEN, Certainty.OVERDUE):
        return "Start the client again with the same transactional.id: initTransactions aborts what it left open.", None
    abort = (
        "kafka-transactions.sh --bootstrap-server HOST:PORT abort --topic __consumer_offsets"
        f" --partition {patient.facts.offsets_partition} --start-offset {transaction.first_offset}"
    )
    if judgement.hangs:
        return abort, _ask(patient) if judgement.certainty is Certainty.LIKELY else None
    return f"When the coordinator does not know it: {abort}", _ask(patient)


def _ask(patient: Patient) -> str:
    broker = "ID" if patient.copy.files.broker_id is None else str(patient.copy.files.broker_id)
    return (
        f"kafka-transactions.sh --bootstrap-server HOST:PORT find-hanging --broker-id {broker} --topic __consumer_offsets"
        f" --partition {patient.facts.offsets_partition}"
    )


RULES: Final = (of_transactions,)
