"""Rows of topic_health: findings about the logs that a run has read, and about records that earlier runs have read.

A run that reads a log from its beginning judges all of it, as ``groupcoord doctor`` does. An incremental run has statistics of the new
records only. They reveal new transactions, and which transactions of the last run are still open; every other finding is repeated with the
``read_at`` of the run that it was found in.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import fields, replace
from typing import Any, Final

from groupcoord_spark.doctor import (
    FINDINGS,
    CopyFacts,
    Diagnosis,
    FilesBeside,
    Finding,
    HealthSettings,
    KnownTransactions,
    PartitionFacts,
    PartitionGatherer,
    all_files_beside,
    diagnose,
    log_dir_of,
    read_transaction_states,
)
from groupcoord_spark.doctor.findings import age
from groupcoord_spark.doctor.hanging_transactions import Certainty, OpenTransaction
from groupcoord_spark.doctor.reading import map_partitions
from groupcoord_spark.log import PartitionLog
from groupcoord_spark.log.broker_dir.broker_files import LogDirectoryFiles, PartitionFiles, read_log_directory_files
from groupcoord_spark.pipeline.exchange.state_rows import PartitionReport
from groupcoord_spark.pipeline.replay.after_cleaning import check_after_cleaning, findings_after_cleaning
from groupcoord_spark.pipeline.run import RunRequest
from groupcoord_spark.storage.location import Location, side_by_side
from groupcoord_spark.warehouse import TABLES, RunStart

Row = dict[str, Any]

TOPIC_HEALTH = "topic_health"
CHECKED_BYTES: Final = 64 << 20
"""Maximum log bytes for the check of a future cleaning, which takes about a second; only --full checks more."""
_BLOCKED = "cleaning_blocked_by_open_transaction"
_EVIDENCE_OF_FIELD: Final = {
    "first_timestamp_ms": "first_record_timestamp_ms",
    "last_timestamp_ms": "last_record_timestamp_ms",
    "marker_epoch": "highest_marker_epoch",
    "batches_after": "batches_after_first_offset",
    "bytes_after": "bytes_after_first_offset",
    "pending": "unstable",
}
"""Field of OpenTransaction -> its name in the evidence; the other fields have the same name there."""


def health_rows(
    reports: Sequence[PartitionReport],
    logs: Mapping[int, PartitionLog],
    reads_from: Mapping[int, int],
    newest_timestamps_ms: Mapping[int, int],
    start: RunStart,
    request: RunRequest,
) -> list[Row]:
    """Return the rows of topic_health.

    Args:
        reports: what the readers and the replay say of the offsets partitions.
        logs: offsets partition -> its log, of those about which facts were gathered.
        reads_from: offsets partition -> the start offset of an incremental read.
        newest_timestamps_ms: offsets partition -> the newest timestamp of its records, also of those that earlier runs have read.
        start: the warehouse before the run.
        request: what the user asks of the run.
    """
    as_of_ms = request.as_of_ms
    rows_of_last_run = _rows_of_last_run(start)
    by_partition = {report.offsets_partition: report for report in reports}
    unread = [log for number, log in logs.items() if number not in by_partition or by_partition[number].health is None]
    with_transaction = {row["offsets_partition"] for row in rows_of_last_run if row["certainty"] is not None}
    goes_on_closed = reads_from.keys() - with_transaction
    files = dict(zip((log.offsets_partition for log in unread), _files_beside(unread, goes_on_closed), strict=True))
    facts: dict[int, PartitionFacts] = {}
    for number, log in logs.items():
        report = by_partition.get(number, PartitionReport(number))
        of_partition = PartitionGatherer(log, files[number]).facts() if report.health is None else report.health
        of_partition = replace(of_partition, newest_timestamp_ms=newest_timestamps_ms.get(number, of_partition.newest_timestamp_ms))
        facts[number] = _with_carried(of_partition, rows_of_last_run, report.open_producers) if number in reads_from else of_partition
    cleaned = _after_cleaning([log for number, log in logs.items() if request.full or number not in reads_from], request)
    rows = _rows(_diagnosis(facts, logs, reads_from.keys(), as_of_ms), cleaned, as_of_ms) if facts else []
    sizes = {number: of_partition.log_bytes for number, of_partition in facts.items()}
    together: list[Row] = []
    for number in sorted({*logs, *reads_from}):
        of_run, of_last_run = ([row for row in part if row["offsets_partition"] == number] for part in (rows, rows_of_last_run))
        if number not in logs:
            merged: Sequence[Row] = of_last_run  # the input lacks the partition, which is carried over
        else:
            merged = _merged(of_run, of_last_run) if number in reads_from else of_run
        together += [{**row, "log_bytes": sizes.get(number, row["log_bytes"])} for row in merged]
    of_topic, of_topic_last_run = ([row for row in part if row["offsets_partition"] is None] for part in (rows, rows_of_last_run))
    together += of_topic_last_run if reads_from else of_topic
    since = {_name(row): row["since_ms"] for row in rows_of_last_run}
    for row in together:
        row["since_ms"] = since.get(_name(row), as_of_ms)
        row["evidence"] = json.dumps(row["evidence"], ensure_ascii=False)
    return together


def _files_beside(unread: Sequence[PartitionLog], goes_on_closed: AbstractSet[int]) -> list[FilesBeside]:
    """Return the side files of logs without new records.

    goes_on_closed: offsets partitions that go on from a run without an open transaction. Nothing about their logs is judged again, so
    that their files are not opened: on an object store, opening them takes seconds.
    """
    if not unread:
        return []

    def of_log(log: PartitionLog) -> FilesBeside:
        return FilesBeside(PartitionFiles(), LogDirectoryFiles()) if log.offsets_partition in goes_on_closed else all_files_beside(log)

    return side_by_side(of_log, unread, log_dir_of(unread[0]).filesystem)


def _name(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return row["offsets_partition"], row["finding"], row["subject"]


def _rows_of_last_run(start: RunStart) -> list[Row]:
    """Return the last run's rows without the column ``cluster``."""
    rows = TABLES[TOPIC_HEALTH].to_milliseconds(start.previous(TOPIC_HEALTH)).drop_columns(["cluster"]).to_pylist()
    return [{**row, "evidence": json.loads(row["evidence"])} for row in rows]


def _merged(of_run: Sequence[Row], of_last_run: Sequence[Row]) -> list[Row]:
    """Return the rows of a partition whose new records alone were read."""
    certain = {row["subject"]: row for row in of_last_run if row["certainty"] == Certainty.CERTAIN}
    # What proved it certain may lie in records that this run has not read.
    transactions = [
        _with_age(certain[row["subject"]], row) if row["certainty"] and row["subject"] in certain else row
        for row in of_run
        if row["finding"] in FINDINGS
    ]
    # Findings about transactions, which have a certainty, do not stay.
    stay = [row for row in of_last_run if row["certainty"] is None and row["finding"] in {*FINDINGS} - {_BLOCKED}]
    healthy = [row for row in (*of_last_run, *of_run) if row["finding"] not in FINDINGS]
    return [*transactions, *stay] or healthy[:1]


def _with_age(of_last_run: Row, of_run: Row) -> Row:
    """Return the last run's finding about a transaction with the age that the transaction has now."""
    old, new = (f" for {age(row['evidence']['age_ms'])}, from offset " for row in (of_last_run, of_run))
    evidence = {**of_last_run["evidence"], "age_ms": of_run["evidence"]["age_ms"]}
    return {**of_last_run, "summary": of_last_run["summary"].replace(old, new, 1), "evidence": evidence}


def _with_carried(facts: PartitionFacts, rows_of_last_run: Iterable[Row], open_producers: frozenset[int]) -> PartitionFacts:
    """Return the statistics of the new records with the last run's transactions that are still open."""
    begun = {transaction.producer_id: transaction for transaction in facts.open_transactions}
    carried = [
        _transaction_of(row["evidence"])
        for row in rows_of_last_run
        if row["offsets_partition"] == facts.offsets_partition and row["certainty"] is not None
    ]
    still_open = {transaction.producer_id: transaction for transaction in carried if transaction.producer_id in open_producers}
    transactions = tuple(sorted((begun | still_open).values(), key=lambda transaction: transaction.first_offset))
    stable = min([facts.last_stable_offset, *(transaction.first_offset for transaction in transactions)])
    return replace(facts, open_transactions=transactions, last_stable_offset=stable)


def _transaction_of(evidence: Mapping[str, Any]) -> OpenTransaction:
    """Return the open transaction of a finding in the last run."""
    values: dict[str, Any] = {field.name: evidence[_EVIDENCE_OF_FIELD.get(field.name, field.name)] for field in fields(OpenTransaction)}
    return OpenTransaction(**values | {"pending": tuple(map(tuple, values["pending"]))})


def _diagnosis(
    facts: Mapping[int, PartitionFacts], logs: Mapping[int, PartitionLog], read_in_part: AbstractSet[int], as_of_ms: int
) -> Diagnosis:
    log_dirs: dict[str, Location] = {}
    partitions: dict[str, list[PartitionFacts]] = {}
    for number, of_partition in facts.items():
        log_dir = log_dir_of(logs[number])
        log_dirs[log_dir.uri] = log_dir
        partitions.setdefault(log_dir.uri, []).append(of_partition)
    copies = [CopyFacts(log_dir.shown, uri, read_log_directory_files(log_dir), tuple(partitions[uri])) for uri, log_dir in log_dirs.items()]
    # the log of the transaction coordinator can be long, and says something of open transactions only
    has_open = any(of_partition.open_transactions for of_partition in facts.values())
    transaction_states = read_transaction_states(log_dirs.values()) if has_open else KnownTransactions()
    return diagnose(copies, HealthSettings(), transaction_states, as_of_ms=as_of_ms, read_in_part=read_in_part)


def _after_cleaning(logs: Sequence[PartitionLog], request: RunRequest) -> list[Finding]:
    """Return findings about a future cleaning of the logs; none if the check takes long and was not requested."""
    if not request.full and sum(log.bytes for log in logs) > CHECKED_BYTES:
        return []
    outcomes = map_partitions(check_after_cleaning, [(log, [request.semantics]) for log in logs])
    return [
        finding
        for log, (outcome,) in zip(logs, outcomes, strict=True)
        for finding in findings_after_cleaning(outcome.exposures, log_dir_of(log).shown)
    ]


def _rows(diagnosis: Diagnosis, after_cleaning: Sequence[Finding], as_of_ms: int) -> list[Row]:
    rows = [_row(finding, finding.finding, finding.evidence) for finding in (*diagnosis.findings, *after_cleaning)]
    with_finding = {row["offsets_partition"] for row in rows}
    healthy = [verdict for verdict in diagnosis.verdicts if verdict.offsets_partition not in with_finding]
    rows += [_row(verdict, verdict.verdict, verdict.figures) | {"summary": "Nothing is wrong."} for verdict in healthy]
    log_bytes = {verdict.offsets_partition: verdict.figures["log_bytes"] for verdict in diagnosis.verdicts}
    return [{**row, "log_bytes": log_bytes.get(row["offsets_partition"]), "read_at_ms": as_of_ms} for row in rows]


def _row(judged: Any, finding: str, evidence: Mapping[str, Any]) -> Row:
    """Return a row about a finding or a verdict without a subject and a remedy."""
    columns = ("offsets_partition", "copy", "subject", "certainty", "summary", "remedy", "ask")
    row = {name: getattr(judged, name, None) for name in columns}
    subject = None if row["subject"] is None else str(row["subject"])
    return row | {"finding": finding, "severity": judged.severity.word, "subject": subject, "evidence": evidence}
