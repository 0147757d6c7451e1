"""A group's life as events in order: commits in stretches, rebalances with their causes, what was removed and why, what is to expire."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple

EventKind = Literal["commits", "rebalance", "assignment", "offsets_removed", "group_removed", "expires"]

_NAMED: Final = 3
_SECOND_MS: Final = 1000
_LEAST_RATED_MS: Final = 60_000
"""A rate over less than a minute says nothing."""

_UNITS: Final = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (_SECOND_MS, "s"))


class PartitionStretch(NamedTuple):
    """Successive records about one partition's offset: commits, or tombstones. Times in milliseconds, None where there are none."""

    topic: str
    partition: int
    records: int
    first_committed_offset: int | None
    last_committed_offset: int | None
    from_ms: int | None
    until_ms: int | None
    in_transactions: int
    last_commit_ms: int | None
    expire_ms: int | None
    """Explicit expiry that the last commit asked for."""


class Stretch(NamedTuple):
    """Successive records about the group's offsets, nothing else in between; all commits, or all tombstones."""

    record_offset: int
    is_removal: bool
    partitions: Sequence[PartitionStretch]


class GroupEnd(NamedTuple):
    """A tombstone of the group itself."""

    record_offset: int
    timestamp_ms: int | None
    key_type: int


class Expiry(NamedTuple):
    """What the rules say of one committed offset, or (without a topic) of the group."""

    expires_at_ms: int
    rule: str
    topic: str | None
    partition: int | None


class Event(NamedTuple):
    """One thing that happened to the group. ``time_ms`` None: the records have no timestamps. ``facts``: the same for programs."""

    time_ms: int | None
    until_ms: int | None
    event: EventKind
    record_offset: int | None
    generation: int | None
    what: str
    facts: Mapping[str, Any]


def timeline(
    stretches: Iterable[Stretch], rebalances: Iterable[Mapping[str, Any]], ends: Iterable[GroupEnd], *, retention_ms: int | None
) -> Iterator[Event]:
    """Events of one group in the order of its records.

    rebalances: rows of that table, their time as ``timestamp_ms``. retention_ms: tells what the broker removed by its age from what
    somebody deleted; None: not known.
    """
    told: list[Stretch | GroupEnd | Mapping[str, Any]] = [*stretches, *rebalances, *ends]
    told.sort(key=lambda each: each["record_offset"] if isinstance(each, Mapping) else each.record_offset)
    converted = {each["timestamp_ms"] for each in told if isinstance(each, Mapping) and each["cause"] == "group_converted"}
    last_commits: dict[tuple[str, int], PartitionStretch] = {}
    empty_since_ms: int | None = None
    last_commit_ms: int | None = None
    for each in told:
        if isinstance(each, Mapping):
            if each["kind"] == "generation":
                # Offsets of an Empty classic group age from there, those of the new protocols from their commit.
                empty_since_ms = each["timestamp_ms"] if each["member_count"] == 0 else None
            yield _rebalance(each, last_commit_ms)
        elif isinstance(each, GroupEnd):
            if each.timestamp_ms is None or each.timestamp_ms not in converted:
                facts = {"key_type": each.key_type}
                yield Event(each.timestamp_ms, None, "group_removed", each.record_offset, None, "The group was removed.", facts)
        elif each.is_removal:
            yield _removal(each, last_commits, empty_since_ms, retention_ms)
        else:
            last_commits.update({(one.topic, one.partition): one for one in each.partitions})
            last_commit_ms = _bounds(each)[1]
            yield _commits(each)


def expiries(rows: Iterable[Expiry], as_of_ms: int) -> Iterator[Event]:
    """What the rules say will go, or would have gone at ``as_of_ms``, the earliest first; offsets that go together are one event."""
    together: dict[tuple[int, str, bool], list[Expiry]] = {}
    for row in rows:
        together.setdefault((row.expires_at_ms, row.rule, row.topic is None), []).append(row)
    for (moment, rule, is_group), of_moment in sorted(together.items()):
        which = "The group" if is_group else _places((row.topic or "", row.partition or 0) for row in of_moment)
        verb = "is due to be removed" if moment <= as_of_ms else "will be removed"
        what = f"{which}: {verb} by the rules of that night ({rule})."
        yield Event(moment, None, "expires", None, None, what, {"rule": rule, "offsets": 0 if is_group else len(of_moment)})


def _commits(stretch: Stretch) -> Event:
    records = sum(one.records for one in stretch.partitions)
    from_ms, until_ms = _bounds(stretch)
    in_transactions = sum(one.in_transactions for one in stretch.partitions)
    rate = None
    if from_ms is not None and until_ms is not None and until_ms - from_ms >= _LEAST_RATED_MS:
        rate = records / ((until_ms - from_ms) / 60_000)
    pace = "" if from_ms is None or until_ms is None or until_ms == from_ms else f" in {duration(until_ms - from_ms)}"
    pace += "" if rate is None else f" ({rate:,.1f} a minute)"
    staged = f", {in_transactions:,} of them in transactions" if in_transactions else ""
    back = [one for one in stretch.partitions if (one.last_committed_offset or 0) < (one.first_committed_offset or 0)]
    rewound = f"; went back: {_places((one.topic, one.partition) for one in back)}" if back else ""
    what = f"{_count(records, 'commit')}{staged}{pace}: {_progress(stretch.partitions)}{rewound}."
    facts = {
        "commits": records,
        "in_transactions": in_transactions,
        "commits_a_minute": None if rate is None else round(rate, 3),
        "partitions": [
            {
                "topic": one.topic,
                "partition": one.partition,
                "commits": one.records,
                "first_committed_offset": one.first_committed_offset,
                "last_committed_offset": one.last_committed_offset,
            }
            for one in stretch.partitions
        ],
    }
    return Event(from_ms, until_ms, "commits", stretch.record_offset, None, what, facts)


def _rebalance(row: Mapping[str, Any], last_commit_ms: int | None) -> Event:
    is_assignment = row["kind"] == "assignment"
    name = {"generation": "Generation", "group_epoch": "Group epoch", "assignment": "Target assignment"}[row["kind"]]
    parts = [f"{name} {row['to_generation']}"]
    if not is_assignment:
        parts.append(_count(row["member_count"], "member"))
        if row["members_joined"]:
            parts.append(f"joined: {_names(row['members_joined'])}")
        if row["members_left"]:
            parts.append(f"went: {_names(row['members_left'])}")
    moves = [f"{row[column]:,} {word}" for column, word in _MOVES if row[column]]
    if moves:
        parts.append(f"partitions: {', '.join(moves)}")
    if row["leader_id"] is not None and row["leader_id"] != row["previous_leader_id"]:
        parts.append(f"leader {row['leader_id']}")
    if row["protocol"] is not None and row["protocol"] != row["previous_protocol"]:
        parts.append(f"protocol {row['protocol']}")
    sure = "" if row["confidence"] is None else f" ({row['confidence']})"
    what = f"{'; '.join(parts)}. {row['cause']}{sure}"
    # That somebody joined is said; who left and why is where the evidence counts.
    what += "." if row["cause"] == "member_joined" and row["confidence"] == "certain" else f": {row['evidence']}"
    if row["cause"] == "member_gone" and None not in (last_commit_ms, row["timestamp_ms"]):
        what += f" The group's last commit was {duration(row['timestamp_ms'] - last_commit_ms)} before."
    facts = {key: value for key, value in row.items() if key not in ("record_offset", "timestamp_ms", "to_generation")}
    kind: EventKind = "assignment" if is_assignment else "rebalance"
    return Event(row["timestamp_ms"], None, kind, row["record_offset"], row["to_generation"], what, facts)


_MOVES: Final = (("partitions_moved", "moved"), ("partitions_assigned", "newly assigned"), ("partitions_released", "released"))


def _removal(
    stretch: Stretch, last_commits: dict[tuple[str, int], PartitionStretch], empty_since_ms: int | None, retention_ms: int | None
) -> Event:
    from_ms, until_ms = _bounds(stretch)
    ages: list[int] = []
    expired: list[bool | None] = []
    for one in stretch.partitions:
        last = last_commits.pop((one.topic, one.partition), None)
        if last is None or last.last_commit_ms is None or one.from_ms is None:
            expired.append(None)
            continue
        base_ms = max(last.last_commit_ms, empty_since_ms or last.last_commit_ms)
        ages.append(one.from_ms - base_ms)
        if last.expire_ms is not None:
            expired.append(one.from_ms >= last.expire_ms)
        else:
            expired.append(None if retention_ms is None else one.from_ms - base_ms >= retention_ms)
    reason = "expired" if expired and all(expired) else "deleted" if expired and not any(each is not False for each in expired) else None
    age = ""
    if ages:
        span = duration(min(ages)) if duration(min(ages)) == duration(max(ages)) else f"{duration(min(ages))} to {duration(max(ages))}"
        age = f", {span} after the last commit or the last member"
    why = {"expired": "expired", "deleted": "deleted before their retention was over", None: "removed"}[reason]
    places = _places((one.topic, one.partition) for one in stretch.partitions)
    facts = {
        "reason": reason,
        "partitions": [{"topic": one.topic, "partition": one.partition} for one in stretch.partitions],
        "shortest_age_ms": min(ages, default=None),
    }
    return Event(from_ms, until_ms, "offsets_removed", stretch.record_offset, None, f"{places}: {why}{age}.", facts)


def _bounds(stretch: Stretch) -> tuple[int | None, int | None]:
    begins = [one.from_ms for one in stretch.partitions if one.from_ms is not None]
    ends = [one.until_ms for one in stretch.partitions if one.until_ms is not None]
    return min(begins, default=None), max(ends, default=None)


def _progress(partitions: Sequence[PartitionStretch]) -> str:
    by_topic: dict[str, list[PartitionStretch]] = {}
    for one in partitions:
        by_topic.setdefault(one.topic, []).append(one)
    told = []
    for topic, of_topic in sorted(by_topic.items())[:_NAMED]:
        offsets = [value for one in of_topic for value in (one.first_committed_offset, one.last_committed_offset) if value is not None]
        reach = f" {min(offsets)}" if min(offsets) == max(offsets) else f" {min(offsets)} to {max(offsets)}"
        told.append(f"{topic} {_numbers(one.partition for one in of_topic)} at{reach}")
    rest = len(by_topic) - _NAMED
    return ", ".join(told) + (f" and {rest} more topics" if rest > 0 else "")


def _places(places: Iterable[tuple[str, int]]) -> str:
    by_topic: dict[str, list[int]] = {}
    for topic, partition in places:
        by_topic.setdefault(topic, []).append(partition)
    told = [f"{topic} {_numbers(numbers)}" for topic, numbers in sorted(by_topic.items())[:_NAMED]]
    rest = len(by_topic) - _NAMED
    return ", ".join(told) + (f" and {rest} more topics" if rest > 0 else "")


def _numbers(numbers: Iterable[int]) -> str:
    """0-2,5: runs of partitions."""
    runs: list[list[int]] = []
    for number in sorted(set(numbers)):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


def _names(names: Sequence[str]) -> str:
    first = ", ".join(names[:_NAMED])
    return first if len(names) <= _NAMED else f"{first} and {len(names) - _NAMED} more"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def duration(milliseconds: int) -> str:
    """A span for people, in its two greatest units: 7 d 3 h, 2.5 s, 40 ms."""
    if abs(milliseconds) < _SECOND_MS:
        return f"{milliseconds} ms"
    if abs(milliseconds) < 60 * _SECOND_MS:
        return f"{milliseconds / _SECOND_MS:.3g} s"
    sign, left = ("-" if milliseconds < 0 else ""), abs(milliseconds)
    told: list[str] = []
    for size, unit in _UNITS:
        if left >= size or told:
            told.append(f"{left // size} {unit}")
            left %= size
        if len(told) == 2:
            break
    return sign + " ".join(part for part in told if not part.startswith("0 "))
