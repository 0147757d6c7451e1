"""The rules: what the facts of all partitions and copies say, worst first. Seen on brokers of 4.3.1 with known illnesses."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from groupcoord_spark.doctor.facts import CopyFacts, PartitionFacts, SegmentFacts
from groupcoord_spark.doctor.findings import FINDINGS, Finding, Severity
from groupcoord_spark.doctor.groups import LIVE, MOST_NAMES, SUPERSEDED_TOMBSTONE, THROWAWAY_KINDS, TOMBSTONE, GroupFacts, together
from groupcoord_spark.doctor.hanging_transactions import (
    Certainty,
    Judgement,
    OpenTransaction,
    ProducerElsewhere,
    judge,
    judge_by_coordinator,
)
from groupcoord_spark.doctor.settings import HealthSettings
from groupcoord_spark.doctor.transaction_state import KnownTransactions
from groupcoord_spark.protocol.record_types import MarkerType
from groupcoord_spark.wording import counted

SEGMENTS_SINCE_DUE: Final = 4
"""A cleaner that works comes within seconds or minutes: it does not let this many further segments fill after a partition was due."""
SEGMENTS_PASSED_OVER: Final = 2
"""The same where the cleaner has cleaned newer records of other partitions: it takes the dirtiest partition first."""
CLEAN_COPY: Final = 4
"""How many times as large as its copy on another broker a partition is that this broker's cleaner has left; just before it comes, 2."""
OVERDUE_MS: Final = 86_400_000
"""Cleaning that was due a day ago has not come, however slowly segments fill."""
SEGMENTS_HELD_BACK: Final = 2
"""A transaction that is young and ordinary does not see this many segments fill while the cleaner waits in front of it."""

MOST_OF_THE_LOG: Final = 0.5
FEW_BYTES: Final = 4_096
"""A page of memory: whatever share of a tiny log this many bytes are, nobody needs to mend them."""
SHARE_OF_TOMBSTONES: Final = 0.2
MOST_MARKERS_OF_ONE_SHOT: Final = 4
"""Producers that are made anew for each start of a client have few markers each; a long-lived producer has thousands."""
MANY_REPEATED_COMMITS: Final = 100
FREQUENT_COMMITS_MS: Final = 1_000
"""Clients commit every 5 seconds by default, also where nothing moves: only much faster repetition is an error of the client."""
LONG_METADATA: Final = 1_024
WIDE_COMMIT: Final = 100
MANY_THROWAWAY_GROUPS: Final = 10
MOST_OFFSETS_IN_SEGMENT: Final = 2**31 - 1
LARGE_LOG_BYTES: Final = 100 << 20
"""The default of offsets.topic.segment.bytes: below it all records are usually in the active segment, which is never cleaned."""


@dataclass(frozen=True, slots=True)
class PartitionVerdict:
    """The verdict on one offsets partition of one copy.

    verdict: the name of its worst finding; ``not_due`` where the log is small and all of it in the active segment, else ``healthy``.
    figures: bytes, segments and offsets of the partition by name.
    """

    offsets_partition: int
    copy: str
    verdict: str
    severity: Severity
    figures: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What is wrong, worst first, and the verdict on every partition and copy, worst first.

    dump_ms: the moment at which ages are measured. remarks: sentences about files that are damaged or do not fit.
    """

    dump_ms: int
    findings: tuple[Finding, ...]
    verdicts: tuple[PartitionVerdict, ...]
    remarks: tuple[str, ...]


def diagnose(copies: Sequence[CopyFacts], settings: HealthSettings, known: KnownTransactions, *, as_of_ms: int | None = None) -> Diagnosis:
    """The findings and verdicts.

    known: what the coordinator's own log says of transactions; empty where the copies do not have it.
    as_of_ms: the moment of the dump; None: its newest timestamp.
    """
    partitions = [partition for copy in copies for partition in copy.partitions]
    dump_ms = as_of_ms if as_of_ms is not None else max((partition.newest_timestamp_ms for partition in partitions), default=0)
    findings: list[Finding] = []
    verdicts: list[PartitionVerdict] = []
    for copy in copies:
        for partition in copy.partitions:
            patient = _Patient(copy, partition, copies, settings, known, dump_ms)
            found = list(patient.findings())
            findings += found
            worst = worst_of(found)
            verdict = worst.finding if worst is not None else patient.healthy_verdict()
            severity = worst.severity if worst is not None else Severity.NORMAL
            verdicts.append(PartitionVerdict(partition.offsets_partition, copy.log_dir, verdict, severity, patient.figures))
        findings += _throwaway_groups(copy)
    remarks = [damage for copy in copies for damage in (*copy.files.damages, *(d for each in copy.partitions for d in each.damages))]
    return Diagnosis(
        dump_ms,
        tuple(worst_first(findings)),
        tuple(sorted(verdicts, key=lambda each: (-each.severity, -each.figures["log_bytes"], each.offsets_partition))),
        tuple(remarks),
    )


def worst_first(findings: Iterable[Finding]) -> list[Finding]:
    """The findings in the order in which they are shown."""
    return sorted(findings, key=_badness, reverse=True)


def worst_of(findings: Iterable[Finding]) -> Finding | None:
    """The finding that is the verdict on a partition; None where none of its findings is worse than normal."""
    return max((each for each in findings if each.severity > Severity.NORMAL), key=_badness, default=None)


_RANK = {name: -place for place, name in enumerate(FINDINGS)}


def _badness(finding: Finding) -> tuple[int, int, int, int]:
    size = finding.evidence.get("log_bytes", 0)
    number = -1 if finding.offsets_partition is None else finding.offsets_partition
    return (finding.severity, _RANK[finding.finding], size, -number)


class _Patient:
    """One partition of one copy, with the figures on which several rules rest."""

    def __init__(
        self,
        copy: CopyFacts,
        facts: PartitionFacts,
        copies: Sequence[CopyFacts],
        settings: HealthSettings,
        known: KnownTransactions,
        dump_ms: int,
    ) -> None:
        self._copy = copy
        self._facts = facts
        self._copies = copies
        self._settings = settings
        self._known = known
        self._dump_ms = dump_ms
        active = facts.active_segment_base
        limit = min(facts.last_stable_offset, active)
        self._first_uncleanable = max(
            (each.base_offset for each in facts.segments if each.base_offset <= limit), default=facts.log_start_offset
        )
        checkpoint = facts.checkpoint if facts.checkpoint is not None else 0
        self._clean = [each for each in facts.segments if each.base_offset < checkpoint]
        self._dirty = [each for each in facts.segments if checkpoint <= each.base_offset < self._first_uncleanable]
        self._blocked = [each for each in facts.segments if self._first_uncleanable <= each.base_offset < active]
        clean_bytes, dirty_bytes = _bytes(self._clean), _bytes(self._dirty)
        # where cleaning is blocked, how much of the rest would go is known only as a bound: all that any later record supersedes
        removable = sum(each.superseded_bytes for each in self._dirty) if self._blocked else facts.closed_removable_bytes
        ratio: float | None = round(dirty_bytes / (clean_bytes + dirty_bytes), 4) if dirty_bytes else 0.0
        if facts.checkpoint is None and facts.missing_offsets and dirty_bytes:
            ratio = None  # the cleaner was here, and only the checkpoint says how far it came
        self.figures: dict[str, Any] = {
            "log_bytes": facts.log_bytes,
            "segments": len(facts.segments),
            "closed_segments": max(len(facts.segments) - 1, 0),
            "active_segment_base": active,
            "log_end_offset": facts.log_end_offset,
            "last_stable_offset": facts.last_stable_offset,
            "high_watermark": facts.high_watermark,
            "cleaner_checkpoint": facts.checkpoint,
            "checkpoint_file": facts.has_checkpoint_file,
            "first_uncleanable_offset": self._first_uncleanable,
            "clean_bytes": clean_bytes,
            "cleanable_dirty_bytes": dirty_bytes,
            "cleanable_ratio": ratio,
            "blocked_segments": len(self._blocked),
            "blocked_bytes": _bytes(self._blocked),
            "removable_record_bytes": removable,
            "held_back_record_bytes": max(facts.closed_removable_bytes - removable, 0),
            "offset_holes": facts.holes,
            "missing_offsets": facts.missing_offsets,
            "records": facts.records,
            "keys": facts.keys,
            "dirty_keys": facts.dirty_keys,
            "bytes_by_fate": {fate: size for fate, (_, size) in facts.group_sums.fates.items()},
        }

    def findings(self) -> Iterator[Finding]:
        """All findings of the partition."""
        judged = [(transaction, self._judged(transaction)) for transaction in self._facts.open_transactions]
        yield from self._blocked_cleaning(judged)
        for transaction, judgement in judged:
            yield self._transaction(transaction, judgement)
        yield from self._idle_cleaner()
        yield from self._sizes()
        yield from self._residue()
        yield from self._groups()

    def healthy_verdict(self) -> str:
        """The verdict where no finding is worse than normal."""
        is_small = self._facts.log_bytes < LARGE_LOG_BYTES and len(self._facts.segments) <= 1
        return "not_due" if is_small else "healthy"

    def _finding(
        self,
        finding: str,
        summary: str,
        remedy: str,
        *,
        subject: str | int | None = None,
        evidence: dict[str, Any] | None = None,
        certainty: str | None = None,
        ask: str | None = None,
        severity: Severity | None = None,
    ) -> Finding:
        grade = FINDINGS[finding].severity if severity is None else severity
        number = self._facts.offsets_partition
        return Finding(finding, number, self._copy.log_dir, grade, subject, summary, remedy, evidence or {}, certainty, ask)

    # ------------------------------------------------------------------------------------------------------------------ transactions

    def _judged(self, transaction: OpenTransaction) -> Judgement:
        judgement = judge_by_coordinator(transaction, self._facts.offsets_partition, self._known, now_ms=self._dump_ms)
        return judgement if judgement is not None else self._judged_by_log(transaction)

    def _judged_by_log(self, transaction: OpenTransaction) -> Judgement:
        facts = self._facts
        return judge(
            transaction,
            self._elsewhere(transaction.producer_id),
            now_ms=self._dump_ms,
            newest_here_ms=facts.newest_timestamp_ms,
            max_timeout_ms=self._settings.transaction_max_timeout_ms,
        )

    def _elsewhere(self, producer_id: int) -> list[ProducerElsewhere]:
        """The producer in the other offsets partitions of all copies."""
        found = []
        for copy in self._copies:
            for partition in copy.partitions:
                producers = partition.producers
                place = int(producers.producer_id.searchsorted(producer_id))
                is_there = place < len(producers.producer_id) and producers.producer_id[place] == producer_id
                if partition.offsets_partition != self._facts.offsets_partition and is_there:
                    found.append(
                        ProducerElsewhere(
                            partition.offsets_partition,
                            int(producers.marker_offset[place]),
                            int(producers.marker_timestamp_ms[place]),
                            int(producers.marker_epoch[place]),
                            bool(producers.marker_type[place] == MarkerType.COMMIT),
                            int(producers.highest_epoch[place]),
                        )
                    )
        return found

    def _holds_back(self, transaction: OpenTransaction) -> bool:
        """True where the cleaner waits at a segment with an open transaction, and many closed segments lie at or behind this one's."""
        facts = self._facts
        base = max((each.base_offset for each in facts.segments if each.base_offset <= transaction.first_offset), default=0)
        behind = sum(base <= each.base_offset < facts.active_segment_base for each in facts.segments)
        return facts.checkpoint == self._first_uncleanable and behind >= SEGMENTS_HELD_BACK

    def _blocked_cleaning(self, judged: Sequence[tuple[OpenTransaction, Judgement]]) -> Iterator[Finding]:
        facts = self._facts
        blocking = [(each, judgement) for each, judgement in judged if each.first_offset == facts.last_stable_offset]
        if not blocking or not self._blocked:
            return
        is_old = any(judgement.hangs or judgement.certainty is Certainty.CANDIDATE for _, judgement in blocking)
        transaction, judgement = blocking[0]
        if not is_old and not self._holds_back(transaction):
            return
        held = _bytes(self._blocked)
        summary = (
            f"The transaction of producer {transaction.producer_id}, open since offset {transaction.first_offset}, holds back"
            f" {_size(held)} in {_counted(len(self._blocked), 'closed segment')} of {_size(facts.log_bytes)}."
        )
        evidence = {**self.figures, "blocking_producers": [each.producer_id for each, _ in blocking]}
        remedy, ask = self._remedy(transaction, judgement)
        yield self._finding(
            "cleaning_blocked_by_open_transaction", summary, remedy, subject=transaction.producer_id, evidence=evidence, ask=ask
        )

    def _transaction(self, transaction: OpenTransaction, judgement: Judgement) -> Finding:
        facts = self._facts
        age_ms = self._dump_ms - transaction.last_timestamp_ms
        elsewhere = self._elsewhere(transaction.producer_id)
        later_markers = [
            {
                "partition": each.offsets_partition,
                "offset": each.marker_offset,
                "timestamp_ms": each.marker_timestamp_ms,
                "kind": "COMMIT" if each.is_commit else "ABORT",
                "producer_epoch": each.marker_epoch,
            }
            for each in elsewhere
            if each.marker_offset >= 0 and each.marker_timestamp_ms > transaction.last_timestamp_ms
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
                [transaction.producer_epoch, *(max(each.highest_epoch, each.marker_epoch) for each in elsewhere)]
            ),
            "dump_alone_proves_hanging": self._judged_by_log(transaction).certainty is Certainty.CERTAIN,
        }
        groups = ", ".join(transaction.groups) or "no group"
        pending = _counted(transaction.records, "pending offset")
        begin = f"Producer {transaction.producer_id}, epoch {transaction.producer_epoch}, has {pending} of {groups}"
        summary = f"{begin} for {_age(age_ms)}, from offset {transaction.first_offset} on: {judgement.reason}."
        state = self._known.by_producer.get(transaction.producer_id)
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
            name = "hanging_transaction"
        elif judgement.certainty is Certainty.OVERDUE:
            name = "open_transaction_overdue"
        elif judgement.certainty is Certainty.CANDIDATE or self._holds_back(transaction):
            name = "open_transaction"
        else:
            name = "open_transaction_young"
        remedy, ask = self._remedy(transaction, judgement)
        if name == "open_transaction_young":
            remedy, ask = "None: its client ends it, or the coordinator does after the client's transaction.timeout.ms.", None
        certainty = str(judgement.certainty)
        return self._finding(name, summary, remedy, subject=transaction.producer_id, evidence=evidence, certainty=certainty, ask=ask)

    def _remedy(self, transaction: OpenTransaction, judgement: Judgement) -> tuple[str, str | None]:
        """What ends the transaction, and the question to the broker where the log does not decide."""
        if judgement.certainty in (Certainty.OPEN, Certainty.OVERDUE):
            return "Start the client again with the same transactional.id: initTransactions aborts what it left open.", None
        abort = (
            "kafka-transactions.sh --bootstrap-server HOST:PORT abort --topic __consumer_offsets"
            f" --partition {self._facts.offsets_partition} --start-offset {transaction.first_offset}"
        )
        if judgement.hangs:
            return abort, self._ask() if judgement.certainty is Certainty.LIKELY else None
        return f"When the coordinator does not know it: {abort}", self._ask()

    def _ask(self) -> str:
        broker = "ID" if self._copy.files.broker_id is None else str(self._copy.files.broker_id)
        return (
            f"kafka-transactions.sh --bootstrap-server HOST:PORT find-hanging --broker-id {broker} --topic __consumer_offsets"
            f" --partition {self._facts.offsets_partition}"
        )

    # ----------------------------------------------------------------------------------------------------------------------- cleaner

    def _idle_cleaner(self) -> Iterator[Finding]:
        """never_cleaned or cleaning_stopped: cleaning was due, and segments have filled since then, or a day has gone by."""
        facts, settings = self._facts, self._settings
        is_first_pass = facts.checkpoint is None and not facts.missing_offsets
        # Without a checkpoint the cleaner came at least as far as the last segment with a hole.
        came_to = facts.checkpoint if facts.checkpoint is not None else facts.hole_end
        old_enough = self._dump_ms - settings.min_compaction_lag_ms
        reachable = [each for each in facts.segments if each.base_offset < self._first_uncleanable]
        dirty = [each for each in reachable if each.base_offset >= came_to and each.newest_timestamp_ms <= old_enough]
        clean_bytes, dirty_bytes = _bytes([each for each in reachable if each.base_offset < came_to]), 0
        due = None
        for place, segment in enumerate(dirty):
            dirty_bytes += segment.bytes
            if due is None and dirty_bytes and dirty_bytes >= settings.min_cleanable_ratio * (clean_bytes + dirty_bytes):
                due = place
        removable = self.figures["removable_record_bytes"]
        if due is None or not removable:
            return
        since = len(dirty) - 1 - due
        damaged = [name for name in facts.damaged_indexes if any(f"{each.base_offset:020}." in name for each in dirty)]
        due_ms = dirty[due].newest_timestamp_ms
        files = self._copy.files
        has_checkpoints = facts.has_checkpoint_file or files.high_watermarks is not None or files.recovery_points is not None
        is_off = not facts.has_checkpoint_file and has_checkpoints  # a broker makes the file when it starts its cleaner
        most = SEGMENTS_PASSED_OVER if self._cleaner_was_elsewhere(due_ms) else SEGMENTS_SINCE_DUE
        is_overdue = due_ms >= 0 and self._dump_ms - due_ms > OVERDUE_MS  # records before magic 1 have no timestamp
        clean_copy = self._smaller_copy()
        is_convicted = clean_copy is not None and since >= 1 and CLEAN_COPY * clean_copy.log_bytes < facts.log_bytes
        is_idle = is_off or (has_checkpoints and since >= most) or is_overdue
        if facts.checkpoint is None and not is_first_pass:
            is_idle = False  # how far the cleaner came is a bound only: clean segments without a hole count as dirty
        if not (damaged or is_convicted or is_idle):
            return
        evidence = {**self.figures, "segments_filled_since_due": since, "damaged_transaction_index": list(facts.damaged_indexes)}
        better = ""
        if clean_copy is not None:
            better = f" The copy in {clean_copy.directory} has {_size(clean_copy.log_bytes)}."
            evidence["clean_copy"] = {"directory": clean_copy.directory, "log_bytes": clean_copy.log_bytes}
        broker = "ID" if self._copy.files.broker_id is None else str(self._copy.files.broker_id)
        settings_command = f"kafka-configs.sh --bootstrap-server HOST:PORT --describe --all --entity-type brokers --entity-name {broker}"
        if is_first_pass:
            summary = f"{_size(_bytes(dirty))} in {_counted(len(dirty), 'closed segment')}, and no offset is missing in them.{better}"
            remedy = "Set log.cleaner.enable=true and cleanup.policy=compact, restart the broker, and see its log-cleaner.log."
            yield self._finding("never_cleaned", summary, remedy, evidence=evidence, ask=f"{settings_command} | grep log.cleaner")
            return
        at = f"at offset {facts.checkpoint}" if facts.checkpoint is not None else f"at offset {dirty[0].base_offset} or before"
        summary = (
            f"The cleaner stands {at}; {_size(_bytes(dirty))} in"
            f" {_counted(len(dirty), 'closed segment')} above it are"
            f" {round(100 * _bytes(dirty) / (clean_bytes + _bytes(dirty)))} % of what it can reach; {_size(removable)} would go.{better}"
        )
        ask = "grep -e ERROR -e uncleanable log-cleaner.log"
        if damaged:
            stem = damaged[0].removesuffix(".txnindex")
            summary += f" The transaction index {damaged[0]} is damaged, and a cleaner that reads it gives up."
            remedy = (
                f"Stop the broker, remove {stem}.txnindex and {stem}.index (it makes both anew from the segment), and start the broker."
            )
        else:
            remedy = "Restart the broker: it forgets which partitions it marked as uncleanable. First save log-cleaner.log, which says why."
        yield self._finding("cleaning_stopped", summary, remedy, evidence=evidence, ask=ask)

    def _smaller_copy(self) -> PartitionFacts | None:
        """The smallest copy of the partition in another log directory, if it is less than half as large."""
        others = (
            partition
            for copy in self._copies
            if copy is not self._copy
            for partition in copy.partitions
            if partition.offsets_partition == self._facts.offsets_partition and 2 * partition.log_bytes < self._facts.log_bytes
        )
        return min(others, key=lambda partition: partition.log_bytes, default=None)

    def _cleaner_was_elsewhere(self, due_ms: int) -> bool:
        """True where the cleaner of this log directory has cleaned records of another partition that are newer than ``due_ms``."""
        return any(
            segment.newest_timestamp_ms > due_ms
            for partition in self._copy.partitions
            if partition is not self._facts and partition.checkpoint is not None
            for segment in partition.segments
            if segment.base_offset < partition.checkpoint
        )

    def _sizes(self) -> Iterator[Finding]:
        facts, settings = self._facts, self._settings
        if facts.dirty_keys > settings.keys_in_one_pass:
            summary = f"{facts.dirty_keys:,} distinct keys are dirty, and one pass of the cleaner holds {settings.keys_in_one_pass:,}."
            remedy = (
                f"Raise log.cleaner.dedupe.buffer.size to {_power_of_two(facts.dirty_keys * 24 / settings.dedupe_load_factor):,} bytes."
            )
            yield self._finding("too_many_keys", summary, remedy, evidence={**self.figures, "keys_in_one_pass": settings.keys_in_one_pass})
        largest = facts.batches.largest_batch_bytes
        if largest > settings.max_message_bytes:
            is_unloadable = largest > settings.load_buffer_bytes
            limit = "offsets.load.buffer.size" if is_unloadable else "max.message.bytes"
            summary = f"The batch at offset {facts.batches.largest_batch_offset} has {_size(largest)}, more than {limit}."
            remedy = "Find the group with `groupcoord dump`, and make it smaller: fewer members, shorter subscriptions."
            evidence = {**self.figures, "largest_batch_bytes": largest, "largest_batch_offset": facts.batches.largest_batch_offset}
            severity = Severity.SICK if is_unloadable else None
            yield self._finding("oversized_record", summary, remedy, evidence=evidence, severity=severity)
        for segment in facts.segments:
            if segment.next_offset is not None and segment.next_offset - segment.base_offset > MOST_OFFSETS_IN_SEGMENT:
                span = segment.next_offset - segment.base_offset
                summary = (
                    f"The segment at {segment.base_offset} spans {span:,} offsets; an index names at most {MOST_OFFSETS_IN_SEGMENT:,}."
                )
                remedy = "Upgrade the broker to a release that splits such segments while cleaning (1.1 or later)."
                yield self._finding(
                    "offset_span", summary, remedy, evidence={**self.figures, "segment": segment.base_offset, "offsets": span}
                )
        live = self.figures["bytes_by_fate"].get(LIVE, 0)
        if facts.log_bytes > LARGE_LOG_BYTES and live > MOST_OF_THE_LOG * facts.log_bytes:
            summary = f"The latest values of {facts.keys:,} keys are {_size(live)} of {_size(facts.log_bytes)}."
            remedy = "Fewer groups or partitions, or a shorter offsets.retention.minutes; the cleaner cannot help."
            yield self._finding("live_set", summary, remedy, evidence={**self.figures, "live_bytes": live})

    def _residue(self) -> Iterator[Finding]:
        facts, batches = self._facts, self._facts.batches
        residue = batches.control_bytes + batches.empty_data_bytes
        producers = len(facts.producers.producer_id)
        is_one_shot = batches.control_batches <= MOST_MARKERS_OF_ONE_SHOT * producers
        if is_one_shot and residue >= max(FEW_BYTES, MOST_OF_THE_LOG * facts.log_bytes):
            subject = facts.group_sums.most_transactional
            horizons = batches.marker_horizons_ms
            evidence = {
                **self.figures,
                "producer_ids_in_log": producers,
                "markers": batches.control_batches,
                "marker_bytes": batches.control_bytes,
                "empty_batches": batches.empty_data_batches,
                "empty_batch_bytes": batches.empty_data_bytes,
                "share_of_log_bytes": round(residue / facts.log_bytes, 4),
                "markers_with_delete_horizon": len(horizons),
                "markers_with_passed_horizon": sum(horizon < self._dump_ms for horizon in horizons),
                "transactional_batches_with_records": batches.transactional_batches_with_records,
                "producers_with_more_than_one_marker": int((facts.producers.markers > 1).sum()),
            }
            summary = (
                f"{producers:,} producers left {batches.control_batches:,} markers and {batches.empty_data_batches:,} empty batches:"
                f" {round(100 * residue / facts.log_bytes)} % of {_size(facts.log_bytes)}."
            )
            remedy = "Keep one transactional.id for each instance of the client, not one for each start. What is left goes a day later."
            yield self._finding("many_producers", summary, remedy, subject=subject, evidence=evidence)
        fates = facts.group_sums.fates
        waiting = [fates.get(fate, [0, 0]) for fate in (TOMBSTONE, SUPERSEDED_TOMBSTONE)]
        tombstones, size = sum(count for count, _ in waiting), sum(size for _, size in waiting)
        if size >= max(FEW_BYTES, SHARE_OF_TOMBSTONES * batches.record_bytes):
            of_groups = facts.group_sums
            horizons = batches.data_horizons_ms
            evidence = {
                **self.figures,
                "tombstones": tombstones,
                "offset_tombstones": of_groups.offset_tombstones,
                "group_tombstones": of_groups.group_tombstones,
                "tombstone_record_bytes": size,
                "groups": of_groups.with_tombstones,
                "name_prefix": of_groups.tombstone_prefix,
                "share_of_record_bytes": round(size / batches.record_bytes, 4),
                "with_delete_horizon": len(horizons),
                "delete_horizon_min_ms": min(horizons, default=None),
                "delete_horizon_max_ms": max(horizons, default=None),
                "horizon_passed": sum(horizon < self._dump_ms for horizon in horizons),
            }
            summary = (
                f"{tombstones:,} tombstones of {of_groups.with_tombstones:,} groups are"
                f" {round(100 * size / batches.record_bytes)} % of the bytes of all records;"
                f" {counted(len(horizons), 'batch')} with a delete horizon."
            )
            remedy = (
                "None: the cleaner removes them delete.retention.ms after its first pass, and it comes when the active segment is rolled"
                " (segment.ms, segment.bytes)."
            )
            yield self._finding("tombstones", summary, remedy, evidence=evidence)

    # ------------------------------------------------------------------------------------------------------------------------ groups

    def _groups(self) -> Iterator[Finding]:
        facts = self._facts
        for group in facts.group_sums.largest:
            if group.batch_bytes < MOST_OF_THE_LOG * facts.log_bytes or not group.commits:
                continue
            share = f"{round(100 * group.batch_bytes / facts.log_bytes)} % of {_size(facts.log_bytes)}"
            evidence = {
                **_figures_of_group(group),
                "log_bytes": facts.log_bytes,
                "share_of_log_bytes": round(group.batch_bytes / facts.log_bytes, 4),
            }
            name = group.group_id
            span_ms = max(group.last_timestamp_ms - group.first_timestamp_ms, 1)
            is_repeating = group.repeated_commits >= max(MANY_REPEATED_COMMITS, MOST_OF_THE_LOG * group.commits)
            if is_repeating and span_ms * max(group.keys, 1) < FREQUENT_COMMITS_MS * group.commits:
                summary = (
                    f"Group {name!r} wrote {share}: {group.commits:,} commits to {_counted(group.keys, 'partition')} in {_age(span_ms)},"
                    f" {group.repeated_commits:,} of them with the offset that was already committed."
                )
                remedy = f"Mend the client of group {name!r}: commit after records were read, and at most about once a second."
                yield self._finding("hot_group", summary, remedy, subject=name, evidence=evidence)
            is_most = group.large_commit_bytes >= max(FEW_BYTES, MOST_OF_THE_LOG * facts.batches.record_bytes)
            if group.metadata_bytes >= LONG_METADATA and is_most:
                summary = f"Group {name!r} wrote {share}: its commits carry up to {group.metadata_bytes:,} bytes of metadata."
                remedy = f"Keep that state of group {name!r} elsewhere, or lower offset.metadata.max.bytes (default 4096)."
                yield self._finding("large_metadata", summary, remedy, subject=name, evidence=evidence)
            if group.most_records_in_batch >= WIDE_COMMIT and group.records >= WIDE_COMMIT * group.batches / 2:
                summary = f"Group {name!r} wrote {share}: up to {group.most_records_in_batch:,} partitions in one commit."
                remedy = f"Commit less often in group {name!r} (auto.commit.interval.ms), or only the partitions whose offset has moved."
                yield self._finding("wide_commit", summary, remedy, subject=name, evidence=evidence)


def _throwaway_groups(copy: CopyFacts) -> Iterator[Finding]:
    """The groups of a copy whose names are made anew for each start of a client."""
    sums = [partition.group_sums for partition in copy.partitions]
    kinds: dict[str, Any] = {}
    names: list[str] = []
    number = 0
    for kind in THROWAWAY_KINDS:
        of_kind = together(each.throwaway[kind] for each in sums if kind in each.throwaway)
        if of_kind is not None:
            kinds[kind] = {"groups": of_kind.groups, "deleted": of_kind.deleted, "record_bytes": of_kind.record_bytes}
            names += of_kind.names
            number += of_kind.groups
    if number < MANY_THROWAWAY_GROUPS:
        return
    all_groups = sum(each.groups for each in sums)
    evidence = {"kinds": kinds, "groups": names[:MOST_NAMES], "number_of_groups": number, "all_groups": all_groups}
    parts = ", ".join(f"{figures['groups']:,} named by {kind}" for kind, figures in kinds.items())
    summary = f"{number:,} of {all_groups:,} groups are made anew for each start of a client ({parts}), such as {names[0]!r}."
    remedy = (
        "Give these clients a fixed group.id; delete old groups with kafka-consumer-groups.sh --delete, or lower offsets.retention.minutes."
    )
    severity = FINDINGS["throwaway_groups"].severity
    yield Finding("throwaway_groups", None, copy.log_dir, severity, None, summary, remedy, evidence)


def _figures_of_group(group: GroupFacts) -> dict[str, Any]:
    return {
        "records": group.records,
        "record_bytes": group.record_bytes,
        "batch_bytes": group.batch_bytes,
        "commits": group.commits,
        "repeated_commits": group.repeated_commits,
        "distinct_keys": group.keys,
        "max_metadata_bytes": group.metadata_bytes,
        "max_records_per_batch": group.most_records_in_batch,
        "first_timestamp_ms": group.first_timestamp_ms,
        "last_timestamp_ms": group.last_timestamp_ms,
        "bytes_by_fate": {fate: size for fate, (_, size) in group.fates().items()},
    }


def _bytes(segments: Sequence[SegmentFacts]) -> int:
    return sum(segment.bytes for segment in segments)


def _power_of_two(number: float) -> int:
    return 1 << max(int(number) - 1, 1).bit_length()


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _size(number: int) -> str:
    """Bytes for people: ``950 B``, ``63.2 kB``, ``4.1 GB``."""
    size, unit = float(number), "B"
    for larger in ("kB", "MB", "GB", "TB"):
        if size < 1000:
            break
        size, unit = size / 1000, larger
    return f"{number} B" if unit == "B" else f"{size:.1f} {unit}"


def _age(milliseconds: int) -> str:
    """A duration for people: ``11 s``, ``42 min``, ``3.5 h``, ``12.0 days``."""
    seconds = milliseconds / 1000
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 172_800 else f"{seconds / 86_400:.1f} days"
