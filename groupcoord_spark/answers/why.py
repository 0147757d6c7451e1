"""Why a group or a committed offset is there, has gone or never counted: the story in order, the evidence, and one sentence at the end."""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from operator import attrgetter, itemgetter
from typing import Any, Final, Literal, NamedTuple, TypeVar

from groupcoord_spark.answers.group_history import PlaceHistory, Question, expiry_events, group_history, milliseconds, rows_of, share_events
from groupcoord_spark.answers.removals import OffsetRemoval
from groupcoord_spark.answers.run_changes import NOT_KNOWN, PARTITION_MISSING, REASONS, departure_of
from groupcoord_spark.answers.timeline import (
    Event,
    Jump,
    LowerCommit,
    PartitionStretch,
    Piece,
    RemovedOffsets,
    Stretch,
    Transaction,
    as_clause,
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
    "expired",
    "offsets_deleted",
    "group_deleted",
    "topic_deleted",
    "transaction_aborted",
    "open_transaction",
    "replaced_in_transaction",
    "rewound",
    "group_left_empty",
    "skipped",
    "moved",
    "converted",
    "orphan",
    "expiry_due",
    "vanished",
    "unknown",
]

Found = TypeVar("Found")

_OFFSET_OF_END: Final = attrgetter("record_offset")
_OFFSET_OF_ROW: Final = itemgetter("record_offset")

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
    certainty: str | None
    """How sure the cause of a removal, a rewind or a skip is; None: the records say it."""
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
    """Return the story of a group, topic or partition as of the newest run, or None if no table has a row about it.

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
    if not any(question.topic is None or outcome.topic is not None for step in present for outcome in step.outcomes):
        steps += departure_steps(warehouse, question)
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


def departure_steps(warehouse: Warehouse, question: Question) -> Iterator[Step]:
    """Yield the step for a group or offsets that disappeared between runs without a record of the removal."""
    last_run, next_run, changes = departure_of(
        warehouse, warehouse.run(question.cluster), question.group_id, question.topic, question.partition
    )
    for change in changes:
        if (cause := _CAUSE_OF_DEPARTURE.get(change.why or NOT_KNOWN)) is not None:
            sentence = f"was there in the run of {iso(last_run.as_of_ms)} and gone by that of {iso(next_run.as_of_ms)}: "
            reason = REASONS[change.why or NOT_KNOWN].removesuffix(".")
            sentence += reason[0].lower() + reason[1:]
            subject = "The group" if change.topic is None else f"{change.topic} {change.partition}"
            outcome = Outcome(change.topic, change.partition, cause, None, None, [], sentence)
            yield Step(next_run.as_of_ms, "gone", f"{subject} {sentence}.", [], [outcome])


_REMOVED_GROUPS: Final[Mapping[str, tuple[Cause, str]]] = {
    "group_deleted": ("group_deleted", "was deleted by a request (DeleteGroups)"),
    "converted": ("converted", "changed its protocol: the record of the old kind was removed"),
    "unknown": ("unknown", "was removed, and why is not known"),
}
"""Cause of the tombstone of a group, where the loss of its last offset says no more -> cause and sentence."""


class _Finder:
    """Finds the causes behind the events of one place."""

    def __init__(self, of_place: PlaceHistory, semantics: Semantics, tombstones_of_members: Mapping[int | None, Sequence[int]]) -> None:
        self._history = of_place
        self._tombstones_of_members = tombstones_of_members
        self._semantics = semantics
        self._ends = sorted(of_place.ends, key=_OFFSET_OF_END)
        self._rebalances = sorted((row for row in of_place.rebalances if row["kind"] != "assignment"), key=_OFFSET_OF_ROW)
        transactions = (piece for piece in of_place.pieces if isinstance(piece, Transaction))
        self._aborted = [transaction for transaction in transactions if transaction.result == "aborted" and transaction.commits]
        self._pieces: dict[tuple[type, int | None, int | None], Piece] = {
            (type(piece), piece.record_offset, getattr(piece, "producer_id", None)): piece for piece in of_place.pieces
        }
        self._markers = {
            row["record_offset"]: row["counted_offset"]
            for row in of_place.commits.select(["record_offset", "counted_offset"]).to_pylist()
            if row["counted_offset"] != row["record_offset"]
        }

    def step(self, event: Event) -> Step:
        """Return the event with its outcomes."""
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
        elif event.event in ("skipped", "moved"):
            yield self._jump(self._piece(Jump, event))
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
        sentence += "" if commit.cause is None else f" ({commit.cause}, {commit.certainty})"
        return Outcome(commit.topic, commit.partition, "rewound", commit.certainty, None, records, sentence)

    def _jump(self, jump: Jump) -> Outcome:
        records = [self._record("first value" if jump.kind == "moved" else "new value", jump.record_offset)]
        if jump.kind == "skipped" and jump.from_record_offset not in (None, jump.record_offset):
            records.insert(0, self._record("value before", jump.from_record_offset or 0))
        return Outcome(jump.topic, jump.partition, jump.kind, jump.certainty, None, records, jump.clause)

    def _transaction(self, transaction: Transaction) -> Iterator[Outcome]:
        causes: Mapping[str, Cause] = {"aborted": "transaction_aborted", "open": "open_transaction", "replaced": "replaced_in_transaction"}
        cause = causes.get(transaction.result, "unknown")
        since = "" if transaction.since_ms is None else f" since {iso(transaction.since_ms)}"
        sentence = {
            "transaction_aborted": f"the transaction of {producer_text(transaction)} was aborted, so its commit never counted",
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
        empty = self._last_rebalance(removal.record_offset)
        if removal.cause == "expired" and removal.due_by == "empty" and empty is not None:
            records.append(self._record("group became Empty", empty["record_offset"]))
        records.append(self._record("tombstone", removal.record_offset))
        of_removal = removal.cause, removal.certainty, removal.rule, records, _removal_sentence(removal, empty)
        return Outcome(removal.topic, removal.partition, *of_removal)

    def _last_rebalance(self, record_offset: int | None) -> Mapping[str, Any] | None:
        """Return the newest rebalance before a record, or None if the group has had no member since it was removed."""
        end, row = _last_before(self._ends, record_offset, _OFFSET_OF_END), _last_before(self._rebalances, record_offset, _OFFSET_OF_ROW)
        since = -1 if end is None or end.cause == "converted" else end.record_offset
        return row if row is not None and row["record_offset"] > since else None

    def _group_removed(self, event: Event) -> Outcome:
        records = [self._record("tombstone", event.record_offset or 0)]
        state = self._last_rebalance(event.record_offset)
        if state is not None and event.facts["cause"] in ("group_deleted", "expired"):
            records.insert(0, self._record("last group record", state["record_offset"]))
        if event.facts["cause"] in _REMOVED_GROUPS:
            cause, sentence = _REMOVED_GROUPS[event.facts["cause"]]
            return Outcome(None, None, cause, None, None, records, sentence)
        rule, loss = self._semantics.group_rule, self._last_loss(event.record_offset or 0)
        if loss is None:
            sentence = "was removed by a cleanup: it had no members and no offsets"
            return Outcome(None, None, "expired" if state is not None else "unknown", "likely", rule, records, sentence)
        gone = "" if event.time_ms is None else f" at {iso(event.time_ms)}"
        sentence = f"was removed{gone} by the cleanup that found it without members and offsets"
        return Outcome(None, None, loss.cause, None, rule, records, sentence)

    def _last_loss(self, tombstone_offset: int) -> Outcome | None:
        """Return the cause that removed the group's last offset before its tombstone."""
        end = _last_before(self._ends, tombstone_offset, _OFFSET_OF_END)
        since = -1 if end is None else end.record_offset
        removed_at = max((at for at in self._history.removals if since < at < tombstone_offset), default=None)
        aborted = max((each for each in self._aborted if since < each.at < tombstone_offset), key=attrgetter("at"), default=None)
        if aborted is not None and (removed_at is None or aborted.at > removed_at):
            return next(self._transaction(aborted))
        return None if removed_at is None else self._removed(self._history.removals[removed_at])

    def end_without_tombstone(self) -> Step | None:
        """Return the end of a group without members that disappeared with its last offset (up to 3.9), or None.

        Such a group has no record of its own, so no tombstone of the group shows its end.
        """
        last = max(self._history.removals, default=None)
        if last is None or any(end.record_offset > last for end in self._history.ends) or self._last_rebalance(None) is not None:
            return None
        removal = self._history.removals[last]
        gone = "" if removal.gone_ms is None else f" at {iso(removal.gone_ms)}"
        sentence = f"went{gone} with its last offset: a group that never had members has no record of its own"
        records = [self._record("tombstone", last)]
        rule = self._semantics.group_rule if removal.cause == "expired" else None
        outcome = Outcome(None, None, removal.cause, removal.certainty, rule, records, sentence)
        return Step(removal.gone_ms, "group_removed", f"The group {sentence}.", records, [outcome])

    def _rebalance(self, event: Event) -> Iterator[Outcome]:
        facts, record = event.facts, self._record("group record", event.record_offset or 0)
        if facts["cause"] == "group_converted" and facts["confidence"] == "certain":
            of_write = [end for end in self._history.ends if end.gone_ms == event.time_ms and end.cause == "converted"]
            records = [self._record("tombstone of the old kind of group", end.record_offset) for end in of_write]
            sentence = f"became a {facts['group_type']} group"
            yield Outcome(None, None, "converted", None, None, [*records, record], sentence)
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


def _last_before(ascending: Sequence[Found], record_offset: int | None, offset_of: Callable[[Found], int]) -> Found | None:
    """Return the last of these before a record offset; None: the last of all."""
    number = len(ascending) if record_offset is None else bisect_left(ascending, record_offset, key=offset_of)
    return ascending[number - 1] if number else None


def _removal_sentence(removal: OffsetRemoval, state: Mapping[str, Any] | None) -> str:
    """Return a predicate with the cause and the evidence. state: the group's last rebalance before the tombstone."""
    gone = "" if removal.gone_ms is None else f" at {iso(removal.gone_ms)}"
    age = "" if removal.age_ms is None else duration(removal.age_ms)
    if removal.cause == "expired":
        if removal.due_by == "explicit":
            return f"expired{gone}, {age} after the moment that its last commit asked for"
        if removal.due_by == "empty":
            return f"expired{gone}, {age} after the group became Empty"
        reason = "the group never had members, so nothing but the next commit keeps the offset"
        if state is not None:
            has_members = "the group had members, and no member subscribed to the topic"
            reason = has_members if state["member_count"] else "the group had no members"
        return f"expired{gone}, {age} after the last commit: {reason}"
    sentences = {
        "group_deleted": f"was deleted{gone} with the whole group by a request (DeleteGroups)",
        "topic_deleted": f"was removed{gone} because the topic was deleted",
        "offsets_deleted": f"was deleted{gone} by a request (OffsetDelete)",
    }
    sentence = sentences.get(removal.cause, f"was removed{gone}, and why is not known")
    return f"{sentence} ({removal.certainty}: {as_clause(removal.evidence)})"


def _skipped(warehouse: Warehouse, question: Question, of_place: PlaceHistory) -> Iterator[Step]:
    """Yield the group's records in this place that a broker's loader skips or rejects, with the rule."""
    where: list[Condition] = [("offsets_partition", "=", of_place.place.offsets_partition)]
    rows = rows_of(warehouse, question, "warnings", ["record_offset", "code", "detail"], where).to_pylist()
    for code, detail, record_offset in sorted({(row["code"], row["detail"], row["record_offset"] or -1) for row in rows}):
        records = [] if record_offset < 0 else [Proof("record", of_place.place.offsets_partition, record_offset)]
        yield Step(None, "warning", f"{detail} ({code})", records, ())


def _unreadable(warehouse: Warehouse, question: Question) -> Iterator[Step]:
    """Yield the quarantined records whose key names the subject of the question, in log order."""
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
    """Yield the newest run's rows of the group and of the queried offsets."""
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
    """Yield a share group's positions according to the newest run with a copy of ``__share_group_state``."""
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
    """Return the step of a reset or removal of a share group's position."""
    facts, sentence = event.facts, event.what.removesuffix(".").partition(": ")[2]
    causes: Mapping[str, Cause] = {"topic_deleted": "topic_deleted", "group_deleted": "group_deleted"}
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
    """Return the newest run's step about the group. ``group_records``: the group's rows of the table rebalances."""
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
    """Return the outlook of an existing offset or group."""
    if expiry is None:
        return "no rule of expiration is known for it"
    rule = "" if expiry["rule"] is None else f" (rule {expiry['rule']})"
    at_ms = milliseconds(expiry[column])
    if at_ms is not None:
        is_due = at_ms <= as_of_ms
        return f"the next cleanup removes it: due since {iso(at_ms)}{rule}" if is_due else f"goes at {iso(at_ms)} if nothing changes{rule}"
    return f"stays{rule}" if expiry["blocked_by"] is None else f"stays: {reasons[expiry['blocked_by']]}{rule}"


_JUMPS: Final = ("rewound", "skipped", "moved")
"""Causes after which the offset is there."""


class _Fates(NamedTuple):
    """The outcomes that the conclusion is about."""

    of_group: Outcome | None
    last: Mapping[tuple[str, int], Outcome]
    """(topic, partition) -> the last outcome of the committed offset."""
    pending: Mapping[tuple[str, int], Outcome]
    jumps: Mapping[tuple[str, int], Outcome]

    @classmethod
    def of(cls, steps: Sequence[Step]) -> "_Fates":
        last: dict[tuple[str, int], Outcome] = {}
        of_group: Outcome | None = None
        pending: dict[tuple[str, int], Outcome] = {}
        jumps: dict[tuple[str, int], Outcome] = {}
        for outcome in (outcome for step in steps for outcome in step.outcomes):
            if outcome.topic is None or outcome.partition is None:
                of_group = outcome
                continue
            key = outcome.topic, outcome.partition
            if outcome.cause == "open_transaction":
                pending[key] = outcome
            elif outcome.cause == "still_there" or outcome.cause not in (*_JUMPS, "transaction_aborted", "replaced_in_transaction"):
                last[key] = outcome
            else:
                last.setdefault(key, outcome)
            if outcome.cause in _JUMPS:
                jumps[key] = outcome
        return cls(of_group, last, pending, jumps)


def _jump_text(jump: Outcome) -> str:
    """Return the predicate of a jump without its numbers, by which jumps of several partitions become one sentence."""
    verbs = {"rewound": "went back", "skipped": "skipped records", "moved": "began as copied"}
    reason = jump.sentence.rpartition(" (")[2]
    return f"{verbs[jump.cause]} ({reason}" if reason.endswith(")") else jump.sentence


def _conclusion(question: Question, steps: Sequence[Step]) -> str:
    """Return one sentence about the outcome of everything that was asked about."""
    of_group, last, pending, jumps = _Fates.of(steps)
    alike: dict[tuple[str, str], list[Outcome]] = {}
    for key, outcome in sorted(last.items()):
        jump = _jump_text(jumps[key]) if key in jumps and outcome.cause not in _JUMPS else ""
        alike.setdefault((outcome.sentence, jump), []).append(outcome)
    for _, outcome in sorted(pending.items()):
        alike.setdefault((outcome.sentence, ""), []).append(outcome)
    parts: list[str] = []
    for (sentence, jump), outcomes in alike.items():
        if jump:
            whole = {jumps[outcome.topic or "", outcome.partition or 0].sentence for outcome in outcomes}
            sentence += f"; it {whole.pop()}" if len(whole) == 1 else f"; it last {jump}"
        parts.append(f"{_subject(outcomes)}{_joint(sentence)}{sentence if len(outcomes) == 1 else _of_several(sentence)}")
    if of_group is not None and (question.topic is None or of_group.cause not in ("still_there", "group_left_empty")):
        return f"Group {question.group_id} {'; '.join([of_group.sentence, *parts])}."
    return f"Of group {question.group_id}, {'; '.join(parts) or 'nothing is left of its commits'}."


def most_relevant(steps: Sequence[Step], most: int) -> list[Step]:
    """Return the steps that bear most on the conclusion, in order.

    Jumps of several partitions at one moment and with one cause are one step. The steps of the conclusion come before those with other
    outcomes, these before those without, and later ones before earlier ones.

    Args:
        steps: Of the past, from ``Story.steps``.
        most: The number of steps that are returned.
    """
    fates = _Fates.of(steps)
    decisive = {id(outcome) for outcome in (fates.of_group, *fates.last.values(), *fates.pending.values(), *fates.jumps.values())}
    folded: dict[object, list[Step]] = {}
    for step in steps:
        is_jump = len(step.outcomes) == 1 and step.outcomes[0].cause in _JUMPS
        folded.setdefault((step.time_ms, step.event, _jump_text(step.outcomes[0])) if is_jump else id(step), []).append(step)
    joined = [_joined(alike) for alike in folded.values()]
    ranked = sorted(
        range(len(joined)),
        key=lambda at: (any(id(outcome) in decisive for outcome in joined[at].outcomes), bool(joined[at].outcomes), at),
        reverse=True,
    )
    return [joined[at] for at in sorted(ranked[:most])]


def _joined(steps: Sequence[Step]) -> Step:
    """Return one step for jumps of several partitions that have the moment and the cause in common."""
    first = steps[0]
    if len(steps) == 1:
        return first
    outcomes = [outcome for step in steps for outcome in step.outcomes]
    places = places_text((outcome.topic or "", outcome.partition or 0) for outcome in outcomes)
    evidence = {step.what.partition(f"{step.outcomes[0].sentence}. ")[2] for step in steps}
    what = f"{places}: {_jump_text(first.outcomes[0])}. {evidence.pop() if len(evidence) == 1 else ''}".rstrip()
    return first._replace(what=what, records=[record for step in steps for record in step.records], outcomes=outcomes)


def _subject(outcomes: Sequence[Outcome]) -> str:
    """Return the partitions of outcomes with the same sentence, with their committed offsets if they have any."""
    offsets = [(outcome.topic or "", outcome.partition or 0, outcome.committed_offset) for outcome in outcomes]
    if any(committed_offset is None for *_, committed_offset in offsets):
        return places_text(((topic, partition) for topic, partition, _ in offsets), None)
    return progress_text((PartitionStretch(topic, partition, 1, 0, at, at) for topic, partition, at in offsets), None)


def _joint(sentence: str) -> str:
    """Return the joint between the partitions and a sentence; the partitions are the subject of a sentence that starts with its verb."""
    return " " if sentence.startswith(("is ", "was ", "went ", "expired ", "waits ", "has ")) else ": "


def _of_several(sentence: str) -> str:
    """Put a sentence that starts with its verb into the plural."""
    verb, _, predicate = sentence.partition(" ")
    verbs = {"is": "are", "was": "were", "has": "have", "waits": "wait"}
    if verb not in verbs:
        return sentence
    for singular, plural in (("stays", "stay"), ("goes", "go"), ("the next cleanup removes it", "the next cleanup removes them")):
        predicate = predicate.replace(f"there, and {singular}", f"there, and {plural}", 1)
    predicate = predicate.replace("no broker answers it: its group", "no broker answers them: their group")
    predicate = predicate.replace("no rule of expiration is known for it", "no rule of expiration is known for them")
    return f"{verbs[verb]} {predicate.replace('; it ', '; they ')}"
