"""The events of one group in order: commits, rewinds, transactions, rebalances, removals with their causes, and what will expire."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Literal, NamedTuple

from groupcoord_spark.answers.removals import NOT_JUDGED, GroupRemoval, OffsetRemoval
from groupcoord_spark.wording import counted, first_of

EventKind = Literal[
    "commits",
    "rewind",
    "committed_again",
    "skipped",
    "moved",
    "transaction",
    "rebalance",
    "assignment",
    "offsets_removed",
    "group_removed",
    "gone",
    "share_reset",
    "share_removed",
    "expires",
]

_MAX_NAMES: Final = 3
"""A sentence names this many members or topics."""
_SECOND_MS: Final = 1000
_MIN_RATE_PERIOD_MS: Final = 60_000
"""No rate is given for less than a minute of commits."""
_MIN_REPORTED_WAIT_MS: Final = 1_000
"""The time that a transaction was open is given from one second on."""

_UNITS: Final = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (_SECOND_MS, "s"))


class PartitionStretch(NamedTuple):
    """Successive commits of one topic partition, or one tombstone."""

    topic: str
    partition: int
    commits: int
    """Number of commits that count."""
    replaced: int
    """Number of transactional commits that never counted: a later commit or a tombstone came before the end of the transaction."""
    lowest: int | None
    highest: int | None
    """Lowest and highest committed offset of the commits that count; None: no commit counts."""


class Stretch(NamedTuple):
    """Successive commits of the group without another event in between, and without a lower offset."""

    at: int
    """Position among the events: the record offset at which the first commit starts to count."""
    record_offset: int
    from_ms: int | None
    until_ms: int | None
    in_transactions: int
    longest_wait_ms: int
    """Longest time from a transactional commit to the marker that made it count."""
    partitions: Sequence[PartitionStretch]
    last_record_offset: int | None = None


class LowerCommit(NamedTuple):
    """A commit of a lower offset than the commit before it."""

    at: int
    record_offset: int
    time_ms: int | None
    topic: str
    topic_id: str | None
    partition: int
    from_committed_offset: int
    to_committed_offset: int
    from_record_offset: int
    producer_id: int | None
    """Of a transactional commit; None: the commit was not in a transaction."""
    is_after_removal: bool
    """A tombstone removed the offset between the two commits."""
    may_miss_commits: bool = False
    """The log cleaner removed records between the two commits before a run read them."""
    is_of_new_topic: bool = False
    """The two commits have different topic ids: the topic was recreated, and its offsets start at 0 again."""
    owner: str | None = None
    """Id of the member that had the partition when the commit was written; None: not known."""
    transactional_id: str | None = None
    cause: str | None = None
    """As in offset_events; None: no run has judged the commit."""
    certainty: str | None = None
    evidence: str = ""


class Jump(NamedTuple):
    """A row of offset_events: record offsets that were never read, or offsets that another group had committed before."""

    at: int
    record_offset: int
    time_ms: int | None
    kind: Literal["skipped", "moved"]
    cause: str
    certainty: str
    evidence: str
    topic: str
    partition: int
    from_committed_offset: int | None
    to_committed_offset: int | None
    from_record_offset: int | None
    records_skipped: int | None
    other_group_id: str | None

    @property
    def clause(self) -> str:
        """A predicate with the cause."""
        if self.kind == "moved":
            return f"began at {self.to_committed_offset}, as copied from group {self.other_group_id} ({self.certainty})"
        number = "" if self.records_skipped is None else f"{counted(self.records_skipped, 'record')}: "
        return f"skipped {number}from {self.from_committed_offset} to {self.to_committed_offset} ({self.cause}, {self.certainty})"


class RemovedOffsets(NamedTuple):
    """Tombstones of offsets from one write, with the same cause."""

    at: int
    record_offset: int
    time_ms: int | None
    partitions: Sequence[PartitionStretch]
    removals: Sequence[OffsetRemoval]


class Transaction(NamedTuple):
    """A transaction whose commits do not count, or do not count yet."""

    at: int
    record_offset: int
    producer_id: int
    result: Literal["aborted", "open", "replaced", "unknown"]
    """replaced: still open, and later commits or tombstones replaced its commits. unknown: no marker was read, and in the newest run the
    transaction is not open."""
    since_ms: int | None
    ended_ms: int | None
    ended_later: Literal["committed", "aborted"] | None
    """How the transaction ended after the last moment that is shown; None: it ended before, or has not ended."""
    partitions: Sequence[PartitionStretch]
    commits: Sequence[tuple[int, str, int]] = ()
    """(record offset, topic, partition) of each of its commits."""
    marker_offset: int | None = None
    """Record offset of the marker that ended the transaction; None: no marker was read."""
    transactional_id: str | None = None


Piece = Stretch | LowerCommit | Jump | RemovedOffsets | Transaction


class Expiry(NamedTuple):
    """When, and by which rule, one committed offset expires, or (topic None) the group is removed."""

    expires_at_ms: int
    rule: str
    topic: str | None
    partition: int | None


class Event(NamedTuple):
    """One event of the group.

    time_ms: None where the records have no timestamps. what: The event as a sentence. facts: The same facts for programs.
    """

    time_ms: int | None
    until_ms: int | None
    event: EventKind
    record_offset: int | None
    generation: int | None
    what: str
    facts: Mapping[str, Any]


def timeline(
    pieces: Iterable[Piece],
    rebalances: Iterable[Mapping[str, Any]],
    ends: Iterable[GroupRemoval],
    *,
    retention_ms: int | None,
    from_ms: int | None = None,
    to_ms: int | None = None,
) -> Iterator[Event]:
    """Yield the events of one group in record order.

    Args:
        pieces: Commits, removals and transactions, from ``answers.offset_history``.
        rebalances: All rows of the group in the table ``rebalances``, with their time as ``timestamp_ms``.
        ends: Tombstones of the group.
        retention_ms: Retention of offsets; None: not known.
        from_ms: First time of the events; None: all events.
        to_ms: End of the time of the events; None: all events.
    """
    steps: list[Piece | GroupRemoval | Mapping[str, Any]] = [*pieces, *rebalances, *ends]
    steps.sort(key=_position)
    converted = {step["timestamp_ms"] for step in steps if isinstance(step, Mapping) and step["cause"] == "group_converted"}
    members = _Members.before_first(next((step for step in steps if isinstance(step, Mapping)), None))
    last_commit_ms: int | None = None
    evidence = ""
    for step in steps:
        if isinstance(step, Mapping):
            event = _rebalance(step, last_commit_ms, evidence if step["kind"] == "assignment" else "")
            if step["kind"] != "assignment":
                members, evidence = _Members.after(step), step["evidence"]
        elif isinstance(step, GroupRemoval):
            members = _Members(0, ())
            if step.cause == "converted" and step.gone_ms in converted:
                continue
            event = _group_removed(step)
        elif isinstance(step, RemovedOffsets):
            event = _offsets_removed(step, retention_ms)
        elif isinstance(step, Transaction):
            event = _transaction(step)
        elif isinstance(step, Jump):
            event = _jump(step)
        else:
            last_commit_ms = step.until_ms if isinstance(step, Stretch) else step.time_ms
            event = _commits(step) if isinstance(step, Stretch) else _lower_commit(step, members)
        if is_within(event.time_ms, from_ms, to_ms):
            yield event


def folded(events: Iterable[Event]) -> Iterator[Event]:
    """Join what repeats: generations in which nothing changed, with the commits between them, and jumps of one moment and cause.

    The evidence of a rebalance is given once.
    """
    explained: set[str] = set()
    run: list[Event] = []
    for event in events:
        if run and not _goes_on(run, event):
            yield from _joined(run, explained)
            run = []
        run.append(event)
    yield from _joined(run, explained)


def _goes_on(run: Sequence[Event], event: Event) -> bool:
    first = run[0]
    if event.event in _JUMPS:
        names = ("cause", "certainty")
        is_alike = first.event == event.event and all(first.facts[name] == event.facts[name] for name in names)
        return is_alike and first.time_ms == event.time_ms
    if not _changes_nothing(first):
        return False
    return event.event == "commits" or (_changes_nothing(event) and first.facts["cause"] == event.facts["cause"])


def _changes_nothing(event: Event) -> bool:
    """Return whether the event is a rebalance after which the group has the same members, partitions, leader and protocol."""
    facts = event.facts
    if event.event != "rebalance" or facts["members_joined"] is None or facts["members_left"] is None:
        return False
    is_same = all(facts[name] == facts[f"previous_{name}"] for name in ("leader_id", "protocol"))
    return is_same and not any(facts[name] for name in ("members_joined", "members_left", *(column for column, _ in _MOVES)))


_JUMPS: Final = ("skipped", "moved")


def _joined(run: Sequence[Event], explained: set[str]) -> Iterator[Event]:
    """Yield one event for a run of several that ``folded`` joins, or the events themselves."""
    rebalances = [event for event in run if event.event == "rebalance"]
    if len(run) > 1 and run[0].event in _JUMPS:
        first = run[0]
        places = places_text((event.facts["topic"], event.facts["partition"]) for event in run)
        verb = "skipped records" if first.event == "skipped" else f"began as copied from group {first.facts['other_group_id']}"
        yield first._replace(what=f"{places}: {verb} ({first.facts['cause']}, {first.facts['certainty']}).")
    elif len(rebalances) > 1:
        first, last = rebalances[0], rebalances[-1]
        commits = [event for event in run if event.event == "commits"]
        partitions: dict[tuple[str, int], PartitionStretch] = {}
        for of_partition in (of_partition for event in commits for of_partition in event.facts["partitions"]):
            key = of_partition["topic"], of_partition["partition"]
            lowest, highest = of_partition["first_committed_offset"], of_partition["last_committed_offset"]
            if lowest is not None:
                known = partitions.get(key, PartitionStretch(*key, 0, 0, lowest, highest))
                ends = min(lowest, known.lowest or 0), max(highest, known.highest or 0)
                partitions[key] = known._replace(commits=known.commits + of_partition["commits"], lowest=ends[0], highest=ends[1])
        number = sum(event.facts["commits"] for event in commits)
        between = f" {counted(number, 'commit')}: {progress_text(partitions.values())}." if number else ""
        sure = "" if first.facts["confidence"] is None else f" ({first.facts['confidence']})"
        evidence = first.facts["evidence"]
        once = "" if not evidence or evidence in explained else f" {evidence}"
        explained.add(evidence)
        what = f"Generations {first.generation} to {last.generation}: nothing changed, {first.facts['cause']}{sure}.{once}{between}"
        yield first._replace(until_ms=run[-1].until_ms or run[-1].time_ms, generation=last.generation, what=what)
    else:
        for event in run:
            evidence = event.facts["evidence"] if event.event == "rebalance" else ""
            what = event.what.replace(f": {evidence}", ".") if evidence in explained else event.what
            explained |= {evidence} - {""}
            yield event._replace(what=what)


def _position(step: Piece | GroupRemoval | Mapping[str, Any]) -> int:
    if isinstance(step, Mapping):
        return int(step["record_offset"])
    return step.record_offset if isinstance(step, GroupRemoval) else step.at


def is_within(time_ms: int | None, from_ms: int | None, to_ms: int | None) -> bool:
    """Return whether ``from_ms`` <= time < ``to_ms``; None means no bound."""
    if from_ms is None and to_ms is None:
        return True
    return time_ms is not None and (from_ms is None or time_ms >= from_ms) and (to_ms is None or time_ms < to_ms)


@dataclass(frozen=True, slots=True)
class _Members:
    """The members of the group at one moment."""

    count: int | None
    """None: not known."""
    names: Sequence[str] | None

    @classmethod
    def before_first(cls, rebalance: Mapping[str, Any] | None) -> "_Members":
        """Members before the first rebalance in the history. A group without rebalances never had members."""
        return cls(0, ()) if rebalance is None or rebalance["members_joined"] is not None else cls(None, None)

    @classmethod
    def after(cls, rebalance: Mapping[str, Any]) -> "_Members":
        joined, kept = rebalance["members_joined"], rebalance["members_kept"]
        return cls(rebalance["member_count"], None if joined is None or kept is None else [*joined, *kept])

    def sentence(self, owner: str | None) -> str:
        """Return a sentence about who committed an offset outside of transactions.

        While a group has members, a broker accepts commits of members only.
        """
        if self.count is None:
            return "Who committed it is not known: the members of that time are in no record."
        if self.count == 0:
            return "The group had no members then: an admin's tool committed it, or a client that is not a member."
        if self.names is None or len(self.names) != self.count:
            return "The group's only member then committed it." if self.count == 1 else f"One of {self.count} members committed it."
        if self.count == 1:
            return f"The group's only member then committed it: {self.names[0]}."
        if owner is not None:
            return f"One of {self.count} members committed it; the partition belonged to {owner}."
        return f"One of {self.count} members committed it: {first_of(self.names)}."


def expiries(rows: Iterable[Expiry], as_of_ms: int) -> Iterator[Event]:
    """Yield events for offsets that have expired by ``as_of_ms`` or will expire, the earliest first. Offsets that expire together are
    one event."""
    simultaneous: dict[tuple[int, str, bool], list[Expiry]] = {}
    for row in rows:
        simultaneous.setdefault((row.expires_at_ms, row.rule, row.topic is None), []).append(row)
    for (moment, rule, is_group), expiries_of_moment in sorted(simultaneous.items()):
        which = "The group" if is_group else places_text((row.topic or "", row.partition or 0) for row in expiries_of_moment)
        fate = "due to be removed by the next cleanup" if moment <= as_of_ms else "will be removed, if nothing changes until then"
        sentence = f"{which}: {fate} (rule {rule})."
        yield Event(moment, None, "expires", None, None, sentence, {"rule": rule, "offsets": 0 if is_group else len(expiries_of_moment)})


def _commits(stretch: Stretch) -> Event:
    commits = sum(of_partition.commits for of_partition in stretch.partitions)
    replaced = sum(of_partition.replaced for of_partition in stretch.partitions)
    elapsed_ms = None if stretch.from_ms is None or stretch.until_ms is None else stretch.until_ms - stretch.from_ms
    rate = commits / (elapsed_ms / 60_000) if elapsed_ms is not None and elapsed_ms >= _MIN_RATE_PERIOD_MS else None
    parts = []
    if commits:
        pace = f" in {duration(elapsed_ms)}" if elapsed_ms else ""
        pace += "" if rate is None else f" ({rate:,.1f} a minute)"
        parts.append(f"{counted(commits, 'commit')}{_in_transactions(stretch, commits)}{pace}: {progress_text(stretch.partitions)}.")
    if replaced:
        whose = places_text((of_partition.topic, of_partition.partition) for of_partition in stretch.partitions if of_partition.replaced)
        number = f"{replaced:,} more" if commits else counted(replaced, "commit")
        reason = f"a later commit or a removal of the same offset came before the end of {'its' if replaced == 1 else 'their'} transaction"
        parts.append(f"{number} ({whose}) never counted: {reason}.")
    facts = {
        "commits": commits,
        "in_transactions": stretch.in_transactions,
        "replaced_in_transactions": replaced,
        "longest_wait_ms": stretch.longest_wait_ms if stretch.in_transactions else None,
        "commits_a_minute": None if rate is None else round(rate, 3),
        "partitions": _partition_facts(stretch.partitions),
    }
    return Event(stretch.from_ms, stretch.until_ms, "commits", stretch.record_offset, None, " ".join(parts), facts)


def _in_transactions(stretch: Stretch, commits: int) -> str:
    if not stretch.in_transactions:
        return ""
    which = "all in transactions" if stretch.in_transactions == commits else f"{stretch.in_transactions:,} in transactions"
    if commits == 1:
        which = "in a transaction"
    wait = f", open for up to {duration(stretch.longest_wait_ms)}" if stretch.longest_wait_ms >= _MIN_REPORTED_WAIT_MS else ""
    return f" ({which}{wait})"


def _partition_facts(partitions: Iterable[PartitionStretch]) -> list[dict[str, Any]]:
    return [
        {
            "topic": of_partition.topic,
            "partition": of_partition.partition,
            "commits": of_partition.commits,
            "first_committed_offset": of_partition.lowest,
            "last_committed_offset": of_partition.highest,
        }
        for of_partition in partitions
    ]


def producer_text(piece: LowerCommit | Transaction) -> str:
    """``producer 7``, with the transactional id where the log of transactions names it."""
    name = "" if piece.transactional_id is None else f" (transactional id {piece.transactional_id!r})"
    return f"producer {piece.producer_id}{name}"


def _lower_commit(commit: LowerCommit, members: _Members) -> Event:
    by = commit.from_committed_offset - commit.to_committed_offset
    where = f"{commit.topic} {commit.partition}"
    if commit.is_after_removal:
        below = f"{by} below {commit.from_committed_offset}, where it was removed"
        sentence = f"{where}: committed again at {commit.to_committed_offset}, {below}."
    else:
        sentence = f"{where}: went back from {commit.from_committed_offset} to {commit.to_committed_offset}, by {by}."
    if commit.producer_id is None:
        sentence += f" {members.sentence(commit.owner)}"
    else:
        sentence += f" {producer_text(commit)[0].upper()}{producer_text(commit)[1:]} committed it in a transaction."
    if commit.cause is not None:
        sentence += f" Cause: {commit.cause}, {commit.certainty}. {commit.evidence}"
    if commit.is_of_new_topic:
        sentence += " The topic was created again between the two commits (their topic ids differ), so its offsets count from 0 again."
    if commit.may_miss_commits:
        sentence += " Compaction took records in between before a run read them: there may have been other commits."
    facts = {
        "topic": commit.topic,
        "partition": commit.partition,
        "from_committed_offset": commit.from_committed_offset,
        "to_committed_offset": commit.to_committed_offset,
        "back_by": by,
        "from_record_offset": commit.from_record_offset,
        "producer_id": commit.producer_id,
        "transactional_id": commit.transactional_id,
        "member_count": members.count,
        "owner": commit.owner,
        "members": None if members.names is None else list(members.names),
        "may_miss_commits": commit.may_miss_commits,
        "is_of_new_topic": commit.is_of_new_topic,
        "cause": commit.cause,
        "certainty": commit.certainty,
    }
    kind: EventKind = "committed_again" if commit.is_after_removal else "rewind"
    return Event(commit.time_ms, None, kind, commit.record_offset, None, sentence, facts)


def _jump(jump: Jump) -> Event:
    names = ("topic", "partition", "cause", "certainty", "from_committed_offset", "to_committed_offset", "from_record_offset")
    facts = {name: getattr(jump, name) for name in (*names, "records_skipped", "other_group_id")}
    sentence = f"{jump.topic} {jump.partition}: {jump.clause}. {jump.evidence}"
    return Event(jump.time_ms, None, jump.kind, jump.record_offset, None, sentence, facts)


def _transaction(transaction: Transaction) -> Event:
    commits = sum(of_partition.commits for of_partition in transaction.partitions)
    since_ms, ended_ms = transaction.since_ms, transaction.ended_ms
    since = "" if since_ms is None else f" since {iso(since_ms)}"
    was_open = "" if since_ms is None or ended_ms is None else f" after {duration(ended_ms - since_ms)}"
    they = "it does" if commits == 1 else "they do"
    if transaction.result == "aborted":
        fate = f"aborted{was_open}, so {they} not count"
    elif transaction.ended_later is not None:
        later = "" if ended_ms is None else f" ({transaction.ended_later} at {iso(ended_ms)})"
        fate = f"open{since} until after the last moment shown{later}, so {they} not count yet"
    elif transaction.result == "open":
        fate = f"still open{since}, so {they} not count yet"
    elif transaction.result == "replaced":
        fate = f"still open{since}, and {they} not count any more: a later commit or a removal of the same offset came first"
    else:
        fate = "no record of its end was read, and the newest run does not know it as open; whether it was committed is not known"
    which = f"{counted(commits, 'commit')} in a transaction of {producer_text(transaction)} ({progress_text(transaction.partitions)})"
    sentence = f"{which}: {fate}."
    is_over = transaction.result == "aborted"
    facts = {
        "result": transaction.result,
        "producer_id": transaction.producer_id,
        "transactional_id": transaction.transactional_id,
        "open_since": None if since_ms is None else iso(since_ms),
        "ended": None if ended_ms is None else iso(ended_ms),
        "commits": commits,
        "partitions": _partition_facts(transaction.partitions),
    }
    time_ms = ended_ms if is_over else since_ms
    return Event(time_ms, None, "transaction", transaction.record_offset, None, sentence, facts)


def _rebalance(row: Mapping[str, Any], last_commit_ms: int | None, evidence_before: str) -> Event:
    """Return the event of one row of ``rebalances``. ``evidence_before`` is not repeated."""
    is_assignment = row["kind"] == "assignment"
    name = {"generation": "Generation", "group_epoch": "Group epoch", "assignment": "Target assignment"}[row["kind"]]
    parts = [f"{name} {row['to_generation']}"]
    if not is_assignment:
        parts.append(counted(row["member_count"], "member"))
        if row["members_joined"]:
            parts.append(f"joined: {first_of(row['members_joined'])}")
        if row["members_left"]:
            parts.append(f"went: {first_of(row['members_left'])}")
    moves = [f"{row[column]:,} {word}" for column, word in _MOVES if row[column]]
    if moves:
        parts.append(f"partitions: {', '.join(moves)}")
    if row["leader_id"] is not None and row["leader_id"] != row["previous_leader_id"]:
        parts.append(f"leader {row['leader_id']}")
    if row["protocol"] is not None and row["protocol"] != row["previous_protocol"]:
        parts.append(f"protocol {row['protocol']}")
    sure = "" if row["confidence"] is None else f" ({row['confidence']})"
    sentence = f"{'; '.join(parts)}. {row['cause']}{sure}"
    evidence = row["evidence"].removesuffix(evidence_before).strip() if evidence_before else row["evidence"]
    # Names of members that joined are in the sentence already, so the evidence of a certain join adds nothing.
    sentence += "." if not evidence or (row["cause"] == "member_joined" and row["confidence"] == "certain") else f": {evidence}"
    if row["cause"] == "member_gone" and not is_assignment and None not in (last_commit_ms, row["timestamp_ms"]):
        sentence += f" The group's last commit was {duration(row['timestamp_ms'] - last_commit_ms)} before."
    facts = {key: value for key, value in row.items() if key not in ("record_offset", "timestamp_ms", "to_generation")}
    kind: EventKind = "assignment" if is_assignment else "rebalance"
    return Event(row["timestamp_ms"], None, kind, row["record_offset"], row["to_generation"], sentence, facts)


_MOVES: Final = (("partitions_moved", "moved"), ("partitions_assigned", "newly assigned"), ("partitions_released", "released"))


def _offsets_removed(removed: RemovedOffsets, retention_ms: int | None) -> Event:
    first = removed.removals[0]
    ages = [removal.age_ms for removal in removed.removals if removal.age_ms is not None]
    age = ""
    if ages:
        shortest, longest = duration(min(ages)), duration(max(ages))
        age = shortest if shortest == longest else f"{shortest} to {longest}"
    places = places_text((of_partition.topic, of_partition.partition) for of_partition in removed.partitions)
    facts = {
        "cause": first.cause,
        "certainty": first.certainty,
        "reason": {"expired": "expired", "unknown": None}.get(first.cause, "deleted"),
        "partitions": [{"topic": of_partition.topic, "partition": of_partition.partition} for of_partition in removed.partitions],
        "shortest_age_ms": min(ages, default=None),
        "groups_at_once": first.groups_at_once,
    }
    sentence = f"{places}: {_why_removed(first, age, retention_ms)}."
    return Event(removed.time_ms, None, "offsets_removed", removed.record_offset, None, sentence, facts)


def _why_removed(removal: OffsetRemoval, age: str, retention_ms: int | None) -> str:
    if removal.cause == "expired":
        if removal.due_by == "explicit":
            return f"expired, {age} after the moment that its last commit asked for"
        since = "the last commit" if removal.due_by == "commit" else "the group became Empty"
        return f"expired, {age} after {since}" + ("" if retention_ms is None else f" (offsets are kept for {duration(retention_ms)})")
    clause_of_age = f", {age} after the last commit" if age else ""
    sentences = {
        "group_deleted": "deleted with the whole group by a request (DeleteGroups)",
        "topic_deleted": "removed because the topic was deleted",
        "offsets_deleted": "deleted by a request (OffsetDelete)",
    }
    sentence = f"{sentences.get(removal.cause, 'removed, and why is not known')}{clause_of_age}"
    return f"{sentence} ({removal.certainty}: {as_clause(removal.evidence)})"


def as_clause(sentence: str) -> str:
    """Turn a sentence into a clause: start it in lower case and drop the period."""
    is_name = sentence[1:2].isupper() or sentence == NOT_JUDGED
    return (sentence if is_name else sentence[:1].lower() + sentence[1:]).removesuffix(".")


def _group_removed(end: GroupRemoval) -> Event:
    cause = end.cause
    if cause == "converted":
        sentence = "The group's old record was removed: the group changes its protocol."
    elif cause == "group_deleted":
        sentence = "The group was deleted by a request (DeleteGroups)."
    elif cause == "unknown":
        sentence = "The group was removed; why is not known: the history does not go back far enough, or its records have no times."
    elif end.with_offsets:
        sentence = "The group was removed by the same cleanup: it had no members and no offset was left."
    else:
        sentence = "The group was removed: it had no members and no offsets."
        sentence += " A cleanup does that, and a request (DeleteGroups) looks the same."
    return Event(end.gone_ms, None, "group_removed", end.record_offset, None, sentence, {"key_type": end.key_type, "cause": cause})


def progress_text(partitions: Iterable[PartitionStretch], most_topics: int | None = _MAX_NAMES) -> str:
    """Topics with ranges of partitions and of their committed offsets: ``orders 0-2,5 at 10 to 12, payments 0 at 3``.

    Partitions without a commit that counts are left out. most_topics: the text counts the topics beyond these; None: it names all.
    """
    by_topic: dict[str, list[PartitionStretch]] = {}
    for of_partition in partitions:
        if of_partition.commits:
            by_topic.setdefault(of_partition.topic, []).append(of_partition)
    texts = []
    for topic, stretches in sorted(by_topic.items()):
        offsets = [value for of_partition in stretches for value in (of_partition.lowest, of_partition.highest) if value is not None]
        reach = f" {min(offsets)}" if min(offsets) == max(offsets) else f" {min(offsets)} to {max(offsets)}"
        texts.append(f"{topic} {_numbers(of_partition.partition for of_partition in stretches)} at{reach}")
    return first_of(texts, most_topics, noun="topic")


def places_text(places: Iterable[tuple[str, int]], most_topics: int | None = _MAX_NAMES) -> str:
    """Topics with ranges of partitions as text: ``orders 0-2,5, payments 0``. most_topics: as for ``progress_text``."""
    by_topic: dict[str, list[int]] = {}
    for topic, partition in places:
        by_topic.setdefault(topic, []).append(partition)
    return first_of([f"{topic} {_numbers(numbers)}" for topic, numbers in sorted(by_topic.items())], most_topics, noun="topic")


def _numbers(numbers: Iterable[int]) -> str:
    """Partitions as text, with ranges: ``0-2,5``."""
    ranges: list[list[int]] = []
    for number in sorted(set(numbers)):
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges)


def iso(milliseconds: int) -> str:
    """Format a time in ISO 8601, in UTC, with milliseconds."""
    return f"{datetime.fromtimestamp(milliseconds // 1000, UTC):%Y-%m-%dT%H:%M:%S}.{milliseconds % 1000:03d}Z"


def duration(milliseconds: int) -> str:
    """Format a duration in its two largest units: ``7 d 3 h``, ``2.5 s``, ``40 ms``."""
    if abs(milliseconds) < _SECOND_MS:
        return f"{milliseconds} ms"
    if abs(milliseconds) < 60 * _SECOND_MS:
        return f"{milliseconds / _SECOND_MS:.3g} s"
    sign, remainder = ("-" if milliseconds < 0 else ""), abs(milliseconds)
    parts: list[str] = []
    for size, unit in _UNITS:
        if remainder >= size or parts:
            parts.append(f"{remainder // size} {unit}")
            remainder %= size
        if len(parts) == 2:
            break
    return sign + " ".join(part for part in parts if not part.startswith("0 "))
