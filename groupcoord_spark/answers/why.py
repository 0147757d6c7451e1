"""Why a group or a committed offset is there, has gone or never counted: the story in order, the evidence, and one sentence at the end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, Literal, NamedTuple

from groupcoord_spark.answers.group_history import PlaceHistory, Question, expiry_events, group_history, milliseconds, rows_of, share_events
from groupcoord_spark.answers.night_changes import NOT_KNOWN, PARTITION_MISSING, REASONS, departure_of
from groupcoord_spark.answers.removal_causes import OffsetRemoval
from groupcoord_spark.answers.timeline import (
    Event,
    LowerCommit,
    PartitionStretch,
    Piece,
    RemovedOffsets,
    Stretch,
    Transaction,
    duration,
    iso,
    places_text,
    producer_text,
    progress_text,
)
from groupcoord_spark.coordinator.semantics import Semantics
from groupcoord_spark.protocol.definition import decode_key
from groupcoord_spark.protocol.errors import DecodeError
from groupcoord_spark.protocol.record_types import KEY_TYPES_OF
from groupcoord_spark.warehouse import Condition, Warehouse
from groupcoord_spark.warehouse.reasons import GROUP_STAYS_BECAUSE, OFFSET_STAYS_BECAUSE
from groupcoord_spark.wording import counted

Cause = Literal[
    "still_there",
    "expired_simple",
    "expired_empty_group",
    "expired_unsubscribed",
    "expired_explicit",
    "offset_delete",
    "group_delete",
    "topic_delete",
    "aborted_transaction",
    "open_transaction",
    "replaced_in_transaction",
    "rewound",
    "group_left_empty",
    "superseded_by_conversion",
    "orphan",
    "expiry_due",
    "vanished",
    "unknown",
]

_STATE_TABLES: Final = ("committed_offsets", "pending_offsets", "orphan_offsets")

_MEMBER_KEY_TYPES: Final = [key_types.member for key_types in KEY_TYPES_OF.values()]


class Proof(NamedTuple):
    """A record of ``__consumer_offsets`` that is evidence."""

    what: str
    offsets_partition: int
    record_offset: int

    def __str__(self) -> str:
        return f"{self.what} {self.offsets_partition}@{self.record_offset}"


class Outcome(NamedTuple):
    """What became of a committed offset, or (topic None) of the group, and why."""

    topic: str | None
    partition: int | None
    cause: Cause
    other_cause: Cause | None
    """Another cause that the records fit as well."""
    rule: str | None
    """Id of the rule of expiration that decides."""
    records: Sequence[Proof]
    sentence: str
    """A predicate, whose subject is the offset or the group."""
    committed_offset: int | None = None
    """Of an offset that is in the state, or waits in an open transaction."""


class Step(NamedTuple):
    """A part of the story."""

    time_ms: int | None
    event: str
    what: str
    records: Sequence[Proof]
    outcomes: Sequence[Outcome]


class Story(NamedTuple):
    """The answer of ``why``."""

    steps: Sequence[Step]
    conclusion: str


def why(warehouse: Warehouse, question: Question, semantics: Semantics) -> Story | None:
    """The story of a group, a topic or a partition as of the newest run; None: no table has a row that the question is about.

    semantics: Of the run.
    """
    run = warehouse.run(question.cluster)
    steps: list[Step] = []
    finder: _Finder | None = None
    for place_history in group_history(warehouse, question, semantics):
        finder = _Finder(place_history, semantics, _tombstones_of_members(warehouse, question, place_history))
        steps += [finder.step(event) for event in place_history.events(question, run.retention_ms)]
        steps = [*steps, *_skipped(warehouse, question, place_history)]
    unreadable = list(_unreadable(warehouse, question))
    present = list(_present(warehouse, question, run.as_of_ms))
    if finder is not None and question.topic is None and not present and (end := finder.end_without_tombstone()) is not None:
        steps.append(end)
    steps += _departure(warehouse, question, present)
    steps += [_share_step(event) for event in share_events(warehouse, question)]
    outcomes = [outcome for step in [*steps, *present] for outcome in step.outcomes]
    has_commits = any(step.event == "commits" for step in steps)
    if not has_commits and not unreadable and not any(question.topic is None or outcome.topic is not None for outcome in outcomes):
        return None
    steps.sort(key=lambda step: (step.time_ms is None, step.time_ms or 0))
    steps += [*unreadable, *present]
    future = [Step(event.time_ms, event.event, event.what, (), ()) for event in expiry_events(warehouse, question)]
    return Story([*steps, *future], _conclusion(question, steps) + _what_is_not_known(len(unreadable)))


_CAUSE_OF_DEPARTURE: Final[Mapping[str, Cause]] = {
    "expiry_due": "expiry_due",
    "vanished": "vanished",
    "orphaned": "orphan",
    "topic_begun_anew": "unknown",
    PARTITION_MISSING: "unknown",
    NOT_KNOWN: "unknown",
}
"""Why something is gone that no tombstone explains -> cause."""


def _departure(warehouse: Warehouse, question: Question, present: Sequence[Step]) -> Iterator[Step]:
    """The step for a group or offsets that a night had and a later one has not, where no night read a record of the removal."""
    if any(question.topic is None or outcome.topic is not None for step in present for outcome in step.outcomes):
        return
    last_night, next_night, changes = departure_of(
        warehouse, warehouse.run(question.cluster), question.group_id, question.topic, question.partition
    )
    for change in changes:
        if (cause := _CAUSE_OF_DEPARTURE.get(change.why or NOT_KNOWN)) is not None:
            sentence = f"was there in the night of {iso(last_night.as_of_ms)} and gone by that of {iso(next_night.as_of_ms)}: "
            reason = REASONS[change.why or NOT_KNOWN].removesuffix(".")
            sentence += reason[0].lower() + reason[1:]
            subject = "The group" if change.topic is None else f"{change.topic} {change.partition}"
            outcome = Outcome(change.topic, change.partition, cause, None, None, [], sentence)
            yield Step(next_night.as_of_ms, "gone", f"{subject} {sentence}.", [], [outcome])


_REMOVED_GROUPS: Final[Mapping[str, tuple[Cause, str]]] = {
    "delete_groups": ("group_delete", "was deleted by a request (DeleteGroups)"),
    "conversion": ("superseded_by_conversion", "changed its protocol: the record of the old kind was removed"),
    "unknown": ("unknown", "was removed, and why is not known"),
}
"""Cause of the tombstone of a group, where the loss of its last offset says no more -> cause and sentence."""


class _Finder:
    """Finds the causes behind the events of one place."""

    def __init__(self, of_place: PlaceHistory, semantics: Semantics, tombstones_of_members: Mapping[int | None, Sequence[int]]) -> None:
        self._history = of_place
        self._tombstones_of_members = tombstones_of_members
        self._semantics = semantics
        self._pieces: dict[tuple[type, int | None, int | None], Piece] = {
            (type(piece), piece.record_offset, getattr(piece, "producer_id", None)): piece for piece in of_place.pieces
        }
        self._markers = {
            row["record_offset"]: row["counted_offset"]
            for row in of_place.commits.select(["record_offset", "counted_offset"]).to_pylist()
            if row["counted_offset"] != row["record_offset"]
        }

    def step(self, event: Event) -> Step:
        """The event with its outcomes."""
        outcomes = list(self._outcomes(event))
        records: Sequence[Proof] = [] if event.record_offset is None else [self._record("record", event.record_offset)]
        if event.event == "commits":
            stretch = self._piece(Stretch, event)
            records = [self._record("first value", stretch.record_offset)]
            if stretch.last_record_offset not in (None, stretch.record_offset):
                records.append(self._record("last value", stretch.last_record_offset))
        elif outcomes:
            records = sorted({record for outcome in outcomes for record in outcome.records}, key=lambda record: record[1:])
        return Step(event.time_ms, event.event, event.what, records, outcomes)

    def _piece(self, kind: type, event: Event) -> Any:
        producer_id = event.facts.get("producer_id") if kind in (Transaction, LowerCommit) else None
        return self._pieces[kind, event.record_offset, producer_id]

    def _outcomes(self, event: Event) -> Iterator[Outcome]:
        if event.event in ("rewind", "committed_again"):
            yield self._lower(self._piece(LowerCommit, event))
        elif event.event == "transaction":
            yield from self._transaction(self._piece(Transaction, event))
        elif event.event == "offsets_removed":
            for removal in self._piece(RemovedOffsets, event).removals:
                yield self._removed(removal)
        elif event.event == "group_removed":
            yield self._group_removed(event)
        elif event.event == "rebalance":
            yield from self._rebalance(event)

    def _record(self, name: str, record_offset: int) -> Proof:
        return Proof(name, self._history.place.offsets_partition, record_offset)

    def _lower(self, commit: LowerCommit) -> Outcome:
        records = [self._record("value before", commit.from_record_offset), self._record("lower value", commit.record_offset)]
        moment = "" if commit.time_ms is None else f" at {iso(commit.time_ms)}"
        sentence = f"went back from {commit.from_committed_offset} to {commit.to_committed_offset}{moment}"
        sentence += " because the topic was made anew" if commit.is_of_new_topic else ""
        return Outcome(commit.topic, commit.partition, "rewound", None, None, records, sentence)

    def _transaction(self, transaction: Transaction) -> Iterator[Outcome]:
        causes: Mapping[str, Cause] = {"aborted": "aborted_transaction", "open": "open_transaction", "replaced": "replaced_in_transaction"}
        cause = causes.get(transaction.result, "unknown")
        since = "" if transaction.since_ms is None else f" since {iso(transaction.since_ms)}"
        sentence = {
            "aborted_transaction": f"the transaction of {producer_text(transaction)} was aborted, so its commit never counted",
            "open_transaction": f"the transaction of {producer_text(transaction)} is open{since}, so its commit does not count yet",
            "replaced_in_transaction": f"a later record replaced the commit in the open transaction of {producer_text(transaction)}",
        }.get(cause, f"the end of the transaction of {producer_text(transaction)} is in no record")
        for record_offset, topic, partition in transaction.commits:
            records = [self._record("transactional value", record_offset)]
            if transaction.marker_offset is not None:
                records.append(self._record("abort marker", transaction.marker_offset))
            yield Outcome(topic, partition, cause, None, None, records, sentence)

    def _removed(self, removal: OffsetRemoval) -> Outcome:
        records = []
        if removal.value_offset is not None:
            records.append(self._record("last value", removal.value_offset))
            if removal.value_offset in self._markers:
                records.append(self._record("commit marker", self._markers[removal.value_offset]))
        cause, other_cause = self._cause_of(removal)
        empty = self._last_rebalance(removal.record_offset)
        if cause == "expired_empty_group" and removal.due_by == "empty" and empty is not None:
            records.append(self._record("group became Empty", empty["record_offset"]))
        records.append(self._record("tombstone", removal.record_offset))
        rule = self._rule(cause, empty)
        return Outcome(removal.topic, removal.partition, cause, other_cause, rule, records, _removal_sentence(removal, cause, other_cause))

    def _cause_of(self, removal: OffsetRemoval) -> tuple[Cause, Cause | None]:
        """The cause of a removal, and another cause that the records fit as well."""
        if removal.cause == "delete_groups":
            # In 4.x only DeleteGroups and a cleanup remove a group. Up to 3.9 a group without members goes with its last offset.
            if self._semantics.name != "scala":
                return "group_delete", None
            return "group_delete", "offset_delete" if removal.offsets_kept else "topic_delete"
        if removal.cause == "topic_deletion" and removal.metadata_shows is not None:
            return "topic_delete", None
        if removal.cause == "topic_deletion":
            return "topic_delete", None if removal.had_subscriber else self._expired(removal) if removal.had_expired else "offset_delete"
        if removal.cause == "offset_delete":
            return "offset_delete", None if removal.offsets_kept else "topic_delete"
        if removal.cause != "expiry":
            return "unknown", None
        return self._expired(removal), None

    def _expired(self, removal: OffsetRemoval) -> Cause:
        """Why a cleanup takes the offset."""
        if removal.due_by == "explicit":
            return "expired_explicit"
        if removal.due_by == "empty":
            return "expired_empty_group"
        state = self._last_rebalance(removal.record_offset)
        if state is None:
            return "expired_simple"
        return "expired_unsubscribed" if state["member_count"] else "expired_empty_group"

    def _rule(self, cause: Cause, state: Mapping[str, Any] | None) -> str | None:
        if not cause.startswith("expired"):
            return None
        if self._semantics.offset_rules != "X-B":
            return self._semantics.offset_rules
        if cause == "expired_explicit":
            return "X-B0"
        if state is not None and state["group_type"] in ("consumer", "streams"):
            return "X-C1" if state["group_type"] == "consumer" else "X-C2"
        return {"expired_simple": "X-B2", "expired_empty_group": "X-B1", "expired_unsubscribed": "X-B3"}[cause]

    def _last_rebalance(self, record_offset: int | None) -> Mapping[str, Any] | None:
        """The newest rebalance before a record; None: since the group was removed, the group never had a member."""
        since = max((end.record_offset for end in self._history.ends if _is_before(end.record_offset, record_offset)), default=-1)
        of_group = [row for row in self._history.rebalances if row["kind"] != "assignment"]
        if since >= 0 and any(end.cause == "conversion" for end in self._history.ends if end.record_offset == since):
            since = -1
        return next(
            (row for row in reversed(of_group) if since < row["record_offset"] and _is_before(row["record_offset"], record_offset)), None
        )

    def _group_removed(self, event: Event) -> Outcome:
        records = [self._record("tombstone", event.record_offset or 0)]
        state = self._last_rebalance(event.record_offset)
        if state is not None and event.facts["cause"] in ("delete_groups", "expiry"):
            records.insert(0, self._record("last group record", state["record_offset"]))
        if event.facts["cause"] in _REMOVED_GROUPS:
            cause, sentence = _REMOVED_GROUPS[event.facts["cause"]]
            return Outcome(None, None, cause, None, None, records, sentence)
        rule, loss = self._semantics.group_rule, self._last_loss(event.record_offset or 0)
        if loss is None:
            sentence = "was removed by a cleanup: it had no members and no offsets"
            return Outcome(None, None, "expired_empty_group" if state is not None else "unknown", "group_delete", rule, records, sentence)
        gone = "" if event.time_ms is None else f" at {iso(event.time_ms)}"
        sentence = f"was removed{gone} by the cleanup that found it without members and offsets"
        return Outcome(None, None, loss.cause, None, rule, records, sentence)

    def _last_loss(self, tombstone_offset: int) -> Outcome | None:
        """What took the last offset away from the group before its tombstone."""
        losses: list[tuple[int, Outcome]] = [
            (at, self._removed(removal)) for at, removal in self._history.removals.items() if at < tombstone_offset
        ]
        for piece in self._history.pieces:
            if isinstance(piece, Transaction) and piece.result == "aborted" and piece.at < tombstone_offset:
                losses += [(piece.at, outcome) for outcome in self._transaction(piece)]
        since = max((end.record_offset for end in self._history.ends if end.record_offset < tombstone_offset), default=-1)
        losses = [loss for loss in losses if loss[0] > since]
        return max(losses, key=lambda loss: loss[0])[1] if losses else None

    def end_without_tombstone(self) -> Step | None:
        """The end of a group that never had members and went with its last offset (up to 3.9); None: the group ended otherwise.

        Such a group has no record of its own, so no tombstone of the group shows its end.
        """
        last = max(self._history.removals, default=None)
        if last is None or any(end.record_offset > last for end in self._history.ends) or self._last_rebalance(None) is not None:
            return None
        removal = self._history.removals[last]
        cause, other_cause = self._cause_of(removal)
        gone = "" if removal.gone_ms is None else f" at {iso(removal.gone_ms)}"
        sentence = f"went{gone} with its last offset: a group that never had members has no record of its own"
        records = [self._record("tombstone", last)]
        rule = self._semantics.group_rule if cause.startswith("expired") else None
        outcome = Outcome(None, None, cause, other_cause, rule, records, sentence)
        return Step(removal.gone_ms, "group_removed", f"The group {sentence}.", records, [outcome])

    def _rebalance(self, event: Event) -> Iterator[Outcome]:
        facts, record = event.facts, self._record("group record", event.record_offset or 0)
        if facts["cause"] == "group_converted" and facts["confidence"] == "certain":
            of_write = [end for end in self._history.ends if end.gone_ms == event.time_ms and end.cause == "conversion"]
            records = [self._record("tombstone of the old kind of group", end.record_offset) for end in of_write]
            sentence = f"became a {facts['group_type']} group"
            yield Outcome(None, None, "superseded_by_conversion", None, None, [*records, record], sentence)
        if facts["member_count"] == 0 and facts["kind"] != "assignment":
            members = [self._record("tombstone of the last member", at) for at in self._tombstones_of_members.get(event.time_ms, ())]
            yield Outcome(None, None, "group_left_empty", None, None, [*members, record], "became Empty: its last member went")


def _tombstones_of_members(warehouse: Warehouse, question: Question, of_place: PlaceHistory) -> Mapping[int | None, Sequence[int]]:
    """Time of a write -> record offsets of its tombstones of members. A classic group has no such records."""
    if not any(row["member_count"] == 0 and row["group_type"] != "classic" for row in of_place.rebalances):
        return {}
    where: list[Condition] = [
        ("incarnation", "=", of_place.place.incarnation),
        ("offsets_partition", "=", of_place.place.offsets_partition),
        ("key_type", "in", _MEMBER_KEY_TYPES),
        ("is_tombstone", "=", True),
    ]
    tombstones: dict[int | None, list[int]] = {}
    for row in rows_of(warehouse, question, "group_records", ["record_offset", "record_timestamp"], where).to_pylist():
        tombstones.setdefault(milliseconds(row["record_timestamp"]), []).append(row["record_offset"])
    return tombstones


def _is_before(record_offset: int, border: int | None) -> bool:
    return border is None or record_offset < border


def _removal_sentence(removal: OffsetRemoval, cause: Cause, other_cause: Cause | None) -> str:
    gone = "" if removal.gone_ms is None else f" at {iso(removal.gone_ms)}"
    age = "" if removal.age_ms is None else duration(removal.age_ms)
    groups, offsets_kept = removal.groups_at_once, removal.offsets_kept
    for_topic = (
        "no other offset of the topic was left" if groups in (None, 1) else f"{groups} groups lost their offsets of the topic at once"
    )
    if cause == "expired_explicit":
        return f"expired{gone}, {age} after the moment that its last commit asked for"
    if cause.startswith("expired"):
        if removal.due_by == "empty":
            return f"expired{gone}, {age} after the group became Empty"
        reason = {
            "expired_simple": "the group never had members, so nothing but the next commit keeps the offset",
            "expired_empty_group": "the group had no members",
            "expired_unsubscribed": "the group had members, and no member subscribed to the topic",
        }[cause]
        return f"expired{gone}, {age} after the last commit: {reason}"
    if cause == "group_delete" and other_cause is not None:
        return (
            f"was deleted{gone} with the whole group by a request (DeleteGroups), or"
            f" {'by a request (OffsetDelete)' if other_cause == 'offset_delete' else 'because the topic was deleted'};"
            " for DeleteGroups speaks that the group lost all of its offsets at once, and up to 3.9 a group without members goes with its"
            " last offset, whatever took that offset"
        )
    if cause == "group_delete":
        return f"was deleted{gone} with the whole group by a request (DeleteGroups)"
    if cause == "topic_delete" and removal.metadata_shows is not None:
        return f"was removed{gone} because the topic was deleted: {removal.metadata_shows}"
    if cause == "topic_delete" and removal.had_subscriber:
        return (
            f"was removed{gone} because the topic was deleted: a member subscribed to the topic, so no cleanup took the offset, and"
            " requests to delete the offset or the group are refused"
        )
    if cause == "topic_delete" and removal.had_expired:
        return (
            f"was removed{gone} because the topic was deleted, or expired; for the deleted topic speaks that {for_topic}, for the cleanup"
            " that the retention had passed"
        )
    if cause == "topic_delete":
        against = "no record names a deleted topic" if groups is not None and groups > 1 else "one group alone lost offsets"
        return (
            f"was removed{gone} because the topic was deleted, or by a request (OffsetDelete); for the deleted topic speaks that"
            f" {for_topic}, for OffsetDelete that {against}"
        )
    if cause == "offset_delete" and other_cause is not None:
        return (
            f"was deleted{gone} by a request (OffsetDelete), or because the topic was deleted and made anew; for OffsetDelete speaks that"
            f" the topic was committed to soon afterwards, for the deleted topic that {for_topic}"
        )
    if cause == "offset_delete":
        number = "another offset" if offsets_kept == 1 else f"{offsets_kept} other offsets"
        return f"was deleted{gone} by a request (OffsetDelete): {number} of the topic stayed, so the topic was not deleted"
    if removal.value_offset is None:
        which = "by DeleteGroups or by a cleanup" if removal.group_removed else "by a cleanup, by OffsetDelete or with its topic"
        return f"was removed{gone}, {which}: its last commit is in no record that the history has, so its age is not known"
    return f"was removed{gone}, and why is not known: the history does not go back far enough, or its records have no times"


def _skipped(warehouse: Warehouse, question: Question, of_place: PlaceHistory) -> Iterator[Step]:
    """The records of the group in this place that a broker's loader skips or refuses, with the rule."""
    where: list[Condition] = [("offsets_partition", "=", of_place.place.offsets_partition)]
    rows = rows_of(warehouse, question, "warnings", ["record_offset", "code", "detail"], where).to_pylist()
    for code, detail, record_offset in sorted({(row["code"], row["detail"], row["record_offset"] or -1) for row in rows}):
        records = [] if record_offset < 0 else [Proof("record", of_place.place.offsets_partition, record_offset)]
        yield Step(None, "warning", f"{detail} ({code})", records, ())


def _unreadable(warehouse: Warehouse, question: Question) -> Iterator[Step]:
    """The records in quarantine whose key names what the question is about, in the order of the log."""
    columns = ["offsets_partition", "record_offset", "reason", "detail", "key"]
    where: list[Condition] = [("offsets_partition", ">=", 0), ("record_offset", ">=", 0)]
    rows = warehouse.read("quarantined_records", cluster=question.cluster, columns=columns, where=where).to_pylist()
    name, steps = question.group_id.encode(), {}
    for row in rows:
        if row["key"] is None or name not in row["key"]:
            continue
        with suppress(DecodeError):
            fields = decode_key(row["key"]).fields
            topic, partition = fields.get("topic"), fields.get("partition")
            if fields.get("group_id") != question.group_id:
                continue
            if question.topic is not None and (topic is None or partition is None or not question.asks_about(topic, partition)):
                continue
            subject = "A record of the group" if topic is None else f"A record of {topic} {partition}"
            record = Proof("unreadable record", row["offsets_partition"], row["record_offset"])
            steps[record] = Step(None, "quarantined", f"{subject} could not be read: {row['detail']} ({row['reason']})", [record], ())
    yield from (steps[record] for record in sorted(steps))


def _what_is_not_known(unreadable: int) -> str:
    if not unreadable:
        return ""
    records, they = ("record", "it") if unreadable == 1 else ("records", "they")
    return f" {unreadable:,} {records} of it could not be read: what {they} said is missing here."


def _present(warehouse: Warehouse, question: Question, as_of_ms: int) -> Iterator[Step]:
    """What the newest run has of the group and of the offsets that the question is about."""
    expiries = {(row["topic"], row["partition"]): row for row in rows_of(warehouse, question, "offset_expirations").to_pylist()}
    columns = ["topic", "partition", "committed_offset", "offsets_partition", "record_offset", "producer_id", "record_timestamp"]
    for table in _STATE_TABLES:
        more = ["transactional_id"] if table == "pending_offsets" else []
        rows = rows_of(warehouse, question, table, [*columns, *more])
        for row in rows.sort_by([("topic", "ascending"), ("partition", "ascending")]).to_pylist() if rows.num_rows else ():
            if question.asks_about(row["topic"], row["partition"]):
                yield _present_offset(table, row, expiries.get((row["topic"], row["partition"])), as_of_ms)
    yield from _share_positions(warehouse, question, as_of_ms)
    group_records = rows_of(warehouse, question, "rebalances", ["incarnation", "record_offset", "kind"]).to_pylist()
    of_group = rows_of(warehouse, question, "group_expirations").to_pylist()
    for row in rows_of(warehouse, question, "groups").to_pylist():
        yield _present_group(row, group_records, of_group[0] if of_group else None, as_of_ms)


def _share_positions(warehouse: Warehouse, question: Question, as_of_ms: int) -> Iterator[Step]:
    """Where a share group stands, by the newest run that had a copy of ``__share_group_state``."""
    columns = ["topic", "topic_id", "partition", "start_offset", "state_epoch", "record_timestamp", "state_partition", "record_offset"]
    rows = rows_of(warehouse, question, "share_offsets", columns).to_pylist()
    topics = warehouse.read("topics", cluster=question.cluster, columns=["topic_id", "is_deleted", "all_topics_known"]).to_pylist()
    living = {row["topic_id"] for row in topics if not row["is_deleted"]}
    gone = {row["topic_id"] for row in topics if row["is_deleted"]}
    gone |= {row["topic_id"] for row in rows if topics and topics[0]["all_topics_known"]} - living
    for row in sorted(rows, key=lambda row: (row["topic"] or row["topic_id"], row["partition"])):
        topic = row["topic"] or row["topic_id"]
        if question.asks_about(topic, row["partition"]):
            sentence = "has no start offset yet" if row["start_offset"] is None else "is where the share group starts"
            sentence += f" since its epoch {row['state_epoch']}"
            if row["topic_id"] in gone:  # a topic of the same name may have been made since
                topic, sentence = f"{topic} (id {row['topic_id']})", f"{sentence}, and the topic with this id is no more"
            since_ms = milliseconds(row["record_timestamp"])
            since = "" if since_ms is None else f", as written at {iso(since_ms)}"
            place = f"offset {row['record_offset']} of __share_group_state-{row['state_partition']}"
            outcome = Outcome(topic, row["partition"], "still_there", None, None, [], sentence, row["start_offset"])
            start = "" if row["start_offset"] is None else f"{row['start_offset']} "
            yield Step(as_of_ms, "now", f"{topic} {row['partition']}: {start}{sentence}{since} ({place}).", [], [outcome])


def _share_step(event: Event) -> Step:
    """A reset or a removal of a share group's position."""
    facts, sentence = event.facts, event.what.removesuffix(".").partition(": ")[2]
    causes: Mapping[str, Cause] = {"topic_deleted": "topic_delete", "group_deleted": "group_delete"}
    cause: Cause = "rewound" if event.event == "share_reset" else causes.get(facts["why"], "unknown")
    return Step(event.time_ms, event.event, event.what, [], [Outcome(facts["topic"], facts["partition"], cause, None, None, [], sentence)])


def _present_offset(table: str, row: Mapping[str, Any], expiry: Mapping[str, Any] | None, as_of_ms: int) -> Step:
    if table == "pending_offsets":
        name = "" if row["transactional_id"] is None else f" (transactional id {row['transactional_id']!r})"
        sentence = f"waits in the open transaction of producer {row['producer_id']}{name}"
        since_ms = milliseconds(row["record_timestamp"])
        sentence += "" if since_ms is None else f", open since {iso(since_ms)}"
        cause: Cause = "open_transaction"
    elif table == "orphan_offsets":
        sentence, cause = "is in the log and no broker answers it: its group does not exist (R-1.26)", "orphan"
    else:
        sentence, cause = f"is there, and {_stays(expiry, OFFSET_STAYS_BECAUSE, 'expires_at', as_of_ms)}", "still_there"
    records = [Proof("transactional value" if cause == "open_transaction" else "value", row["offsets_partition"], row["record_offset"])]
    rule = None if expiry is None else expiry["rule"]
    outcome = Outcome(row["topic"], row["partition"], cause, None, rule, records, sentence, row["committed_offset"])
    return Step(as_of_ms, "now", f"{row['topic']} {row['partition']}: {row['committed_offset']} {sentence}.", records, [outcome])


def _present_group(
    row: Mapping[str, Any], group_records: Sequence[Mapping[str, Any]], expiry: Mapping[str, Any] | None, as_of_ms: int
) -> Step:
    """What the newest run has of the group. group_records: the group's rows of the table rebalances."""
    kind = "simple" if row["is_simple"] else row["group_type"]
    members = "no members" if row["member_count"] == 0 else counted(row["member_count"], "member")
    offsets = counted(row["offset_count"], "committed offset")
    stays = _stays(expiry, GROUP_STAYS_BECAUSE, "removed_at", as_of_ms)
    sentence = f"is there ({kind}, {row['state']}, {members}, {offsets}), and {stays}"
    # The newest record of a modern group may be about one member; the newest epoch is the newest record of the group as a whole.
    epochs = [(record["incarnation"], record["record_offset"]) for record in group_records if record["kind"] == "group_epoch"]
    record_offset = max(epochs)[1] if epochs and row["group_type"] != "classic" else row["record_offset"]
    records = [] if record_offset is None else [Proof("last group record", row["offsets_partition"], record_offset)]
    rule = None if expiry is None else expiry["rule"]
    return Step(as_of_ms, "now", f"The group {sentence}.", records, [Outcome(None, None, "still_there", None, rule, records, sentence)])


def _stays(expiry: Mapping[str, Any] | None, reasons: Mapping[str, str], column: str, as_of_ms: int) -> str:
    """What becomes of an offset or a group that is there."""
    if expiry is None:
        return "no rule of expiration is known for it"
    rule = "" if expiry["rule"] is None else f" (rule {expiry['rule']})"
    at_ms = milliseconds(expiry[column])
    if at_ms is not None:
        is_due = at_ms <= as_of_ms
        return f"the next cleanup removes it: due since {iso(at_ms)}{rule}" if is_due else f"goes at {iso(at_ms)} if nothing changes{rule}"
    return f"stays{rule}" if expiry["blocked_by"] is None else f"stays: {reasons[expiry['blocked_by']]}{rule}"


def _conclusion(question: Question, steps: Sequence[Step]) -> str:
    """One sentence: what became of everything that the question is about."""
    last: dict[tuple[str, int], Outcome] = {}
    of_group: Outcome | None = None
    pending: dict[tuple[str, int], Outcome] = {}
    lower: dict[tuple[str, int], Outcome] = {}
    for outcome in (outcome for step in steps for outcome in step.outcomes):
        if outcome.topic is None or outcome.partition is None:
            of_group = outcome
        elif outcome.cause == "open_transaction":
            pending[outcome.topic, outcome.partition] = outcome
        elif outcome.cause == "still_there" or outcome.cause not in ("rewound", "aborted_transaction", "replaced_in_transaction"):
            last[outcome.topic, outcome.partition] = outcome
        else:
            last.setdefault((outcome.topic, outcome.partition), outcome)
        if outcome.cause == "rewound" and outcome.topic is not None and outcome.partition is not None:
            lower[outcome.topic, outcome.partition] = outcome
    parts: list[str] = []
    alike: dict[str, list[Outcome]] = {}
    for key, outcome in sorted(last.items()):
        went_back = f"; it {lower[key].sentence}" if key in lower and outcome.cause != "rewound" else ""
        alike.setdefault(outcome.sentence + went_back, []).append(outcome)
    for _, outcome in sorted(pending.items()):
        alike.setdefault(outcome.sentence, []).append(outcome)
    for sentence, outcomes in alike.items():
        parts.append(f"{_subject(outcomes)}{_joint(sentence)}{sentence if len(outcomes) == 1 else _of_several(sentence)}")
    if of_group is not None and (question.topic is None or of_group.cause not in ("still_there", "group_left_empty")):
        return f"Group {question.group_id} {'; '.join([of_group.sentence, *parts])}."
    return f"Of group {question.group_id}, {'; '.join(parts) or 'nothing is left of its commits'}."


def _subject(outcomes: Sequence[Outcome]) -> str:
    """The partitions of outcomes with one sentence, with their committed offsets where they have such."""
    offsets = [(outcome.topic or "", outcome.partition or 0, outcome.committed_offset) for outcome in outcomes]
    if any(committed_offset is None for *_, committed_offset in offsets):
        return places_text(((topic, partition) for topic, partition, _ in offsets), None)
    return progress_text((PartitionStretch(topic, partition, 1, 0, at, at) for topic, partition, at in offsets), None)


def _joint(sentence: str) -> str:
    """What stands between the partitions and a sentence: the partitions are the subject of a sentence that begins with its verb."""
    return " " if sentence.startswith(("is ", "was ", "went ", "expired ", "waits ", "has ")) else ": "


def _of_several(sentence: str) -> str:
    """A sentence that begins with its verb, with several partitions as its subject."""
    verb, _, predicate = sentence.partition(" ")
    verbs = {"is": "are", "was": "were", "has": "have", "waits": "wait"}
    if verb not in verbs:
        return sentence
    for singular, plural in (("stays", "stay"), ("goes", "go"), ("the next cleanup removes it", "the next cleanup removes them")):
        predicate = predicate.replace(f"there, and {singular}", f"there, and {plural}", 1)
    predicate = predicate.replace("no broker answers it: its group", "no broker answers them: their group")
    predicate = predicate.replace("no rule of expiration is known for it", "no rule of expiration is known for them")
    return f"{verbs[verb]} {predicate.replace('; it went back', '; they went back')}"
