"""The removals of groups and their offsets with their causes: rows of the table ``offset_events``."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple

import pyarrow as pa

from groupcoord_spark.warehouse import Condition, Warehouse
from groupcoord_spark.warehouse.tables import OFFSET_EVENTS

Cause = Literal["expired", "group_deleted", "offsets_deleted", "topic_deleted", "converted", "unknown"]

NOT_JUDGED: Final = "the run that read the record was of a release without the table offset_events"

_COLUMNS: Final = (
    *("incarnation", "offsets_partition", "group_id", "topic", "partition", "record_offset", "event_timestamp", "cause", "certainty"),
    *("rule", "evidence", "from_record_offset", "commit_timestamp", "expire_timestamp", "base_timestamp", "groups_at_once"),
    *("group_removed", "key_type", "timestamps_out_of_range"),
)


class Place(NamedTuple):
    """An offsets partition of one incarnation of ``__consumer_offsets``."""

    incarnation: int
    offsets_partition: int

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> "Place":
        """Return the place of a row of a history table."""
        return cls(row["incarnation"], row["offsets_partition"])


class OffsetRemoval(NamedTuple):
    """A tombstone of a committed offset."""

    place: Place
    group_id: str
    topic: str
    partition: int
    record_offset: int
    """Of the tombstone."""
    gone_ms: int | None
    cause: Cause
    certainty: str
    rule: str | None
    """Id of the rule of expiration, where a cleanup removed the offset."""
    evidence: str
    value_offset: int | None
    """Record offset of the last commit before the tombstone; None: no commit is known."""
    commit_ms: int | None
    expire_ms: int | None
    base_ms: int | None
    """The time from which the offset's age counted: its last commit, or the time at which the group became Empty."""
    groups_at_once: int | None
    """Number of groups that lost offsets of the topic at the same time; None: the cause does not depend on other groups."""
    group_removed: bool = False
    """Whether the same write removed the group."""

    @property
    def due_by(self) -> Literal["commit", "empty", "explicit"]:
        """The start of an expired offset's age: its last commit, or the group became empty; or an explicit expiry decided."""
        if self.expire_ms is not None:
            return "explicit"
        return "commit" if self.base_ms == self.commit_ms else "empty"

    @property
    def age_ms(self) -> int | None:
        """Time from the start of the age (of an explicit expiry: from that time) to the tombstone; for other causes from the last commit.

        None: not known.
        """
        since_ms = self.commit_ms
        if self.cause == "expired":
            since_ms = self.base_ms if self.expire_ms is None else self.expire_ms
        return None if since_ms is None or self.gone_ms is None else self.gone_ms - since_ms


class GroupRemoval(NamedTuple):
    """A tombstone of a group itself."""

    place: Place
    group_id: str
    record_offset: int
    gone_ms: int | None
    key_type: int
    cause: Cause
    with_offsets: bool
    """Whether the same write removed offsets of the group."""


class Removals(NamedTuple):
    """All removals of some groups and their offsets in the history tables, in the order of the log."""

    offsets: Sequence[OffsetRemoval]
    groups: Sequence[GroupRemoval]


def removals_of(warehouse: Warehouse, cluster: str, group_ids: Collection[str]) -> Removals:
    """Return all removals of groups and of their offsets, with their causes."""
    where: list[Condition] = [("group_id", "in", sorted(group_ids)), ("kind", "=", "removed")]
    rows = warehouse.read(OFFSET_EVENTS.name, cluster=cluster, columns=_COLUMNS, where=where)
    events = [row for row in OFFSET_EVENTS.to_milliseconds(rows).to_pylist() if row["cause"] != "transaction_aborted"]
    events.sort(key=lambda row: (Place.of(row), row["record_offset"]))
    offsets = [_offset_removal(row) for row in events if row["topic"] is not None]
    writes = {(removal.place, removal.group_id, removal.gone_ms) for removal in offsets}
    groups = []
    for row in (row for row in events if row["topic"] is None):
        place, gone_ms = Place.of(row), _none(row["event_timestamp_ms"])
        with_offsets = (place, row["group_id"], gone_ms) in writes
        groups.append(GroupRemoval(place, row["group_id"], row["record_offset"], gone_ms, row["key_type"], row["cause"], with_offsets))
    return Removals(offsets, groups)


def not_judged(place: Place, group_id: str, commits: pa.Table, known: Collection[int]) -> Iterator[OffsetRemoval]:
    """Yield a removal without a cause for each tombstone that no run has judged.

    Args:
        place: Of the commits.
        group_id: Of the commits.
        commits: ``CountedCommits.rows``.
        known: Record offsets of the tombstones with a cause.
    """
    for row in commits.select(["record_offset", "topic", "partition", "counted_ms", "is_tombstone"]).to_pylist():
        if row["is_tombstone"] and row["record_offset"] not in known:
            of_tombstone = row["topic"], row["partition"], row["record_offset"], row["counted_ms"]
            yield OffsetRemoval(place, group_id, *of_tombstone, "unknown", "possible", None, NOT_JUDGED, None, None, None, None, None)


def _offset_removal(row: Mapping[str, Any]) -> OffsetRemoval:
    commit_ms, expire_ms, base_ms = (_none(row[f"{name}_timestamp_ms"]) for name in ("commit", "expire", "base"))
    return OffsetRemoval(
        Place.of(row),
        row["group_id"],
        row["topic"],
        row["partition"],
        row["record_offset"],
        _none(row["event_timestamp_ms"]),
        row["cause"],
        row["certainty"],
        row["rule"],
        row["evidence"],
        row["from_record_offset"],
        commit_ms,
        expire_ms,
        base_ms,
        row["groups_at_once"],
        bool(row["group_removed"]),
    )


def _none(milliseconds: int) -> int | None:
    return None if milliseconds == -1 else milliseconds
