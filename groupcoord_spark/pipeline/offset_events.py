"""Judges the offset events of a run that depend on several offsets partitions: deleted topics, and offsets copied to another group."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from groupcoord_spark.coordinator.offset_events import (
    ONE_MOMENT_MS,
    REMOVED,
    TOGETHER_MS,
    Copy,
    OffsetEvent,
    OpenRemoval,
    Surroundings,
    TopicLife,
    Verdict,
    judge_copy,
    judge_removal,
)
from groupcoord_spark.pipeline.exchange.kept_records import OffsetQuestions
from groupcoord_spark.pipeline.exchange.packing import unpack
from groupcoord_spark.pipeline.exchange.state_rows import PartitionReport
from groupcoord_spark.pipeline.extents import NO_HISTORY, HistoryRange
from groupcoord_spark.pipeline.read.offset_events import OFFSET_EVENTS, OffsetEventJob, rows_of_events
from groupcoord_spark.pipeline.run import RunRequest
from groupcoord_spark.warehouse import AddedFile, RunStart
from groupcoord_spark.warehouse.tables import LOG_ENDS, TOPICS

_COPIED_COLUMNS: Final = ("group_id", "topic", "partition", "committed_offset", "commit_timestamp", "record_offset")


def offset_event_job(request: RunRequest, beside: Mapping[str, pa.Table], start: RunStart) -> OffsetEventJob | None:
    """Return the job of the makers of offset events, None if the run writes no history. beside: rows of other topics."""
    if not request.writes_history:
        return None
    last = start.finished[-1] if start.finished else None
    earlier = None if last is None or OFFSET_EVENTS not in last.table_versions else last.tables
    return OffsetEventJob(request.semantics, request.retention_ms, _surroundings(beside), earlier)


def _surroundings(beside: Mapping[str, pa.Table]) -> Surroundings:
    extents: dict[tuple[str, int], tuple[int | None, int]] = {}
    sampled_at_ms = -1
    ends = beside.get(LOG_ENDS.name)
    if ends is not None and ends.num_rows:
        columns = (ends[name].to_pylist() for name in ("topic", "partition", "start_offset", "end_offset"))
        extents = {(topic, partition): (first, end) for topic, partition, first, end in zip(*columns, strict=True)}
        sampled_at_ms = pc.max(ends["written_at_ms"]).as_py() or -1
    topics: dict[str, tuple[TopicLife, ...]] = {}
    rows = beside.get(TOPICS.name)
    is_known = rows is not None and rows.num_rows > 0 and bool(pc.all(rows["all_topics_known"]).as_py())
    for row in () if rows is None else rows.to_pylist():
        life = TopicLife(row["created_at_ms"], row["deleted_at_ms"], row["is_deleted"])
        topics[row["topic"]] = (*topics.get(row["topic"], ()), life)
    return Surroundings(extents, topics, is_known, sampled_at_ms)


def earlier_log_starts(job: OffsetEventJob | None, start: RunStart) -> dict[tuple[str, int], int]:
    """Topic and partition -> where its log started in the cluster's last run."""
    if job is None or not any(first for first, _ in job.surroundings.log_extents.values()):
        return {}
    rows = start.previous(LOG_ENDS.name, ["topic", "partition", "start_offset"]).to_pylist()
    return {(row["topic"], row["partition"]): row["start_offset"] for row in rows if row["start_offset"]}


def events_of_run(
    reports: Sequence[PartitionReport],
    job: OffsetEventJob | None,
    ranges: Mapping[int, HistoryRange],
    newest_ms: Mapping[int, int],
    files: Mapping[str, Sequence[AddedFile]],
    start: RunStart,
) -> Iterator[pa.Table]:
    """Yield the rows of offset_events that only the whole run can judge, in Kafka's values.

    Args:
        reports: Of all offsets partitions.
        job: None: the run makes no offset events.
        ranges: Offsets partition -> the record offsets that the history had.
        newest_ms: Offsets partition -> timestamp of its newest record.
        files: The files of the run by table.
        start: The run.
    """
    if job is None:
        return
    questions = {report.offsets_partition: report.offset_questions for report in reports if report.offset_questions is not None}
    verdicts = _Verdicts(questions, newest_ms, job.surroundings)
    copied = {_value_of(event) for of_partition in questions.values() for copy in of_partition.open.copies for event in copy.events}
    states = _states_of(copied, files, start) if copied else {}
    for number, of_partition in questions.items():
        copies = [event for copy in of_partition.open.copies for event in judge_copy(copy, _candidates(copy, states), job.surroundings)]
        for rows in (verdicts.rows_of(number), rows_of_events(copies, number, ranges.get(number, NO_HISTORY))):
            if rows.num_rows:
                yield rows.append_column("run_id", pa.repeat(start.run_id, rows.num_rows))


class _Verdicts:
    """The causes of the removals that depend on the offsets of a topic in all offsets partitions."""

    def __init__(self, questions: Mapping[int, OffsetQuestions], newest_ms: Mapping[int, int], surroundings: Surroundings) -> None:
        self._questions = questions
        self._newest_ms = newest_ms
        self._surroundings = surroundings
        removals: dict[str, list[tuple[int, str]]] = {}
        for of_partition in questions.values():
            rows = unpack(of_partition.removals)
            for topic, *removal in zip(*(rows[name].to_pylist() for name in ("topic", "event_timestamp_ms", "group_id")), strict=True):
                removals.setdefault(topic, []).append((removal[0], removal[1]))
        of_topics = {topic: sorted(of_topic) for topic, of_topic in removals.items()}
        self._groups_near = {topic: groups_near(of_topic, TOGETHER_MS) for topic, of_topic in of_topics.items()}
        self._groups_at_one_moment = {topic: groups_near(of_topic, ONE_MOMENT_MS) for topic, of_topic in of_topics.items()}
        self._keepers = cache(self._keepers_of)
        self._verdict = cache(self._verdict_of)

    def rows_of(self, offsets_partition: int) -> pa.Table:
        """Return the removals of an offsets partition with their causes."""
        rows = unpack(self._questions[offsets_partition].removals)
        verdicts, at_once, rules = [], [], []
        of_rows = (rows[name].to_pylist() for name in ("event_timestamp_ms", *OpenRemoval._fields))
        for gone_ms, topic, commit_ms, *others in zip(*of_rows, strict=True):
            keepers, is_sure = self._keepers(topic, gone_ms)
            groups, is_one_moment = self._groups_near[topic][gone_ms], self._groups_at_one_moment[topic][gone_ms] > 1
            # Only the metadata of the cluster makes a difference between topics, and between times of commits.
            removal = OpenRemoval(topic, commit_ms, *others) if self._surroundings.topics else OpenRemoval("", -1, *others)
            verdict = self._verdict(removal, len(keepers), groups, is_sure or offsets_partition in keepers, is_one_moment)
            verdicts.append(verdict)
            at_once.append(groups)
            rules.append(removal.rule if verdict.cause == "expired" else None)
        columns = dict(zip(Verdict._fields, zip(*verdicts, strict=True), strict=True)) if verdicts else {}
        for name, values in {**columns, "rule": rules, "groups_at_once": at_once}.items():
            place = rows.schema.get_field_index(name)
            rows = rows.set_column(place, name, pa.array(values, rows.schema.field(place).type))
        return rows.drop_columns(["had_subscriber", "may_be_group"])

    def _verdict_of(self, removal: OpenRemoval, kept: int, groups: int, kept_is_sure: bool, is_one_moment: bool) -> Verdict:
        return judge_removal(removal, kept, groups, self._surroundings, kept_is_sure=kept_is_sure, is_one_moment=is_one_moment)

    def _keepers_of(self, topic: str, gone_ms: int) -> tuple[frozenset[int], bool]:
        """Return the offsets partitions that kept an offset of the topic, and whether the log of one of them goes on."""
        keepers = frozenset(number for number, of_partition in self._questions.items() if of_partition.open.kept(topic, gone_ms))
        return keepers, any(self._newest_ms.get(number, -1) > gone_ms + TOGETHER_MS for number in keepers)


def groups_near(removals: Sequence[tuple[int, str]], within_ms: int) -> dict[int, int]:
    """Return for the time of each removal the number of groups that lost an offset within some milliseconds of it.

    removals: time and group of the removals of a topic, sorted.
    """
    numbers: dict[int, int] = {}
    counts: Counter[str] = Counter()
    first = end = 0
    for moment_ms, _ in removals:
        if moment_ms in numbers:
            continue
        while end < len(removals) and removals[end][0] <= moment_ms + within_ms:
            counts[removals[end][1]] += 1
            end += 1
        while removals[first][0] < moment_ms - within_ms:
            group_id = removals[first][1]
            counts[group_id] -= 1
            if not counts[group_id]:
                del counts[group_id]
            first += 1
        numbers[moment_ms] = len(counts)
    return numbers


_Value = tuple[str, int, int]
"""Topic, partition and committed offset."""


def _value_of(event: OffsetEvent) -> _Value:
    return event.topic or "", event.partition or 0, event.to_committed_offset or 0


def _candidates(copy: Copy, states: Mapping[_Value, Sequence[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Return the rows of other groups with the same committed offset in one of the partitions."""
    return [row for event in copy.events for row in states.get(_value_of(event), ()) if row["group_id"] != event.group_id]


def _states_of(
    values: Collection[_Value], files: Mapping[str, Sequence[AddedFile]], start: RunStart
) -> Mapping[_Value, Sequence[dict[str, Any]]]:
    """Return the rows with these committed offsets, of those that the run leaves and those that it saw removed."""
    states: dict[_Value, list[dict[str, Any]]] = {}
    topics, offsets = sorted({topic for topic, _, _ in values}), sorted({offset for _, _, offset in values})
    of_removed = ("group_id", "topic", "partition", "from_committed_offset", "commit_timestamp", "from_record_offset")
    for table, columns in (("committed_offsets", _COPIED_COLUMNS), (OFFSET_EVENTS, of_removed)):
        where = [("topic", "in", topics), (columns[3], "in", offsets), *([("kind", "=", REMOVED)] if table == OFFSET_EVENTS else [])]
        opened = start.warehouse.tables[table]
        paths = [opened.path_of(file.path) for file in files.get(table, ())]
        rows = opened.rows_in(paths, start.cluster, columns, where).rename_columns([*_COPIED_COLUMNS])
        time = pc.divide(rows["commit_timestamp"].cast(pa.int64()), 1000)
        for row in rows.set_column(rows.column_names.index("commit_timestamp"), "commit_timestamp", time).to_pylist():
            value = row["topic"], row["partition"], row["committed_offset"]
            if value in values:
                states.setdefault(value, []).append(row)
    return states
