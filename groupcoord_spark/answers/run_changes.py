"""What changed from one run to another: groups, committed offsets and pending offsets, and why offsets and groups are gone."""

from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

import pyarrow.compute as pc

from groupcoord_spark.answers.removals import GroupRemoval, OffsetRemoval, Place, Removals, removals_of
from groupcoord_spark.sources.inputs import InputKind
from groupcoord_spark.warehouse import Condition, Run, Warehouse

CHANGES: Final[Mapping[str, str]] = {
    "group_gone": "The group was there and is no longer.",
    "group_born": "The group is new.",
    "group_changed": "The group has another type, state or number of members.",
    "group_rebalanced": "The group has another generation or epoch; its type, state and number of members are the same.",
    "offset_gone": "The committed offset was there and is no longer.",
    "offset_rewound": "The committed offset is lower.",
    "offset_new": "The committed offset is new.",
    "topic_gone": "The topic was there by the cluster's metadata and is no longer.",
    "share_gone": "The share group had a position in the partition and has none any longer.",
    "share_reset": "The start offset of the share group is lower: it was reset or altered.",
    "share_stopped": "The share group stands where it stood although its lag grew; FROM and TO are the lag.",
    "pending_gone": "The offset was pending in an open transaction and is no longer.",
    "pending_new": "The offset is pending in an open transaction now.",
    "offset_forward": "The committed offset is higher.",
}
"""Kind of change -> sentence, in listing order: changes that may need attention come first."""

NOT_KNOWN: Final = "not_known"
NO_LOG: Final = "no_log"
PARTITION_MISSING: Final = "partition_missing"

REASONS: Final[Mapping[str, str]] = {
    "expired": "Its retention was over: a cleanup removed it.",
    "group_deleted": "A request deleted the group.",
    "topic_deleted": "The topic that it was committed for was deleted.",
    "offsets_deleted": "A request deleted the offset.",
    "converted": "The group was converted to another protocol.",
    "orphaned": "The group was deleted without its offsets: the table orphan_offsets has the offset.",
    "topic_begun_anew": "The offsets topic was deleted and made again.",
    "reset": "A client that is not a member set it back, as kafka-consumer-groups --reset-offsets does.",
    "restarted_after_removal": "It was removed in between, and the group began again at a lower offset.",
    "topic_recreated": "The topic was deleted and created again, so its offsets began again at 0.",
    "log_truncated": "The log of the partition ended below it.",
    "late_commit": "A former owner of the partition committed it.",
    "seek": "A member committed a lower offset.",
    "committed": "Its transaction was committed.",
    "aborted": "Its transaction was aborted.",
    "expiry_due": "Its retention was over by then, so a cleanup was due to remove it; the history has no record of the removal.",
    "vanished": "Its record is gone from the log, and no run has read a later one or a tombstone: the warning keys_vanished has more.",
    PARTITION_MISSING: "The later run read no record of its offsets partition: the copy may have lacked it (--accept missing).",
    NO_LOG: "The runs are from the Admin API, and only the log tells why.",
    NOT_KNOWN: "The history has no record of its removal, or the records do not show the cause.",
}
"""Why something is gone, or lower -> sentence."""

_OFFSET_KEY: Final = ("group_id", "topic", "partition")
_GROUP_VALUES: Final = {"group_type": "type", "state": "state", "generation": "generation", "member_count": "members"}
_SHARE_PROGRESS: Final = ("start_offset", "delivery_complete_count")
_SHARE_POSITIONS: Final = """
SELECT group_id, topic_id, COALESCE(topic, topic_id) AS name, partition, start_offset, delivery_complete_count, lag, remark FROM share_lag
"""
_OffsetKey = tuple[str, str, int]
"""Group, topic and partition."""

_Row = Mapping[str, Any]


class Change(NamedTuple):
    """One change of a group, a topic, a committed offset, a pending offset or the position of a share group."""

    change: str
    """A key of CHANGES."""
    group_id: str
    """Empty for a topic."""
    topic: str | None
    partition: int | None
    before: Any
    """A committed offset, or of a group its type, state, generation and members as a dictionary; None: it was not there."""
    after: Any
    why: str | None
    """A key of REASONS if the subject is gone, or if the history shows why a committed offset is lower; else None."""


def last_run_that_differs(warehouse: Warehouse, run: Run) -> tuple[Run, list[Change]] | None:
    """Return the newest earlier run with a difference, and the changes; None if there is no earlier run with tables.

    Runs over an unchanged copy, or without changes, are skipped. If no earlier run differs, the previous run is returned.
    """
    earlier_runs = _earlier_runs(warehouse, run)
    read_by_run = _read_by(warehouse, run)
    for earlier in reversed(earlier_runs):
        read_the_same = bool(read_by_run[0]) and read_by_run == _read_by(warehouse, earlier)
        if not read_the_same and (changes := run_changes(warehouse, earlier, run)):
            return earlier, changes
    return (earlier_runs[-1], []) if earlier_runs else None


def unchanged_since(warehouse: Warehouse, run: Run) -> Run | None:
    """Return the first run that read the same log as a run, and as all runs between the two; None if the run before read another log."""
    first, read_by_run = None, _read_by(warehouse, run)
    for earlier in reversed(_earlier_runs(warehouse, run)):
        if not read_by_run[0] or read_by_run != _read_by(warehouse, earlier):
            break
        first = earlier
    return first


def _earlier_runs(warehouse: Warehouse, run: Run) -> list[Run]:
    return [each for each in warehouse.kept_runs(run) if each.run_id != run.run_id]


def _read_by(warehouse: Warehouse, run: Run) -> tuple[object, ...]:
    return _logs(warehouse, run), run.semantics, run.row["groups"][0].as_py()  # --accept missing drops groups, the log being the same


def departure_of(
    warehouse: Warehouse, run: Run, group_id: str, topic: str | None = None, partition: int | None = None
) -> tuple[Run, Run, list[Change]]:
    """Return the last run with a group, the run by which it was gone, and the change; with ``topic`` the same for its committed offsets.

    No change: the run has them, or no earlier run has. Raises WarehouseError where the tables of a run cannot be read.
    """
    where: list[Condition] = [("group_id", "=", group_id)]
    where += [(name, "=", value) for name, value in (("topic", topic), ("partition", partition)) if value is not None]
    table, first_without = "groups" if topic is None else "committed_offsets", run
    for earlier in reversed(warehouse.kept_runs(run)):
        if warehouse.read(table, columns=["group_id"], where=where, run=earlier).num_rows:
            kind = "group_gone" if topic is None else "offset_gone"
            changes = [change for change in run_changes(warehouse, earlier, first_without, group_id) if change.change == kind]
            changes = [change for change in changes if topic in (None, change.topic) and partition in (None, change.partition)]
            return earlier, first_without, changes
        first_without = earlier
    return run, run, []


def run_changes(warehouse: Warehouse, earlier: Run, later: Run, group_id: str | None = None) -> list[Change]:
    """Return the changes from one run of a cluster to a later one, in the order of CHANGES, then by group, topic and partition.

    group_id: of this group alone; None: of all groups. Raises WarehouseError where the tables of a run cannot be read.
    """
    where: list[Condition] = [] if group_id is None else [("group_id", "=", group_id)]
    columns: tuple[str, ...] = (*_GROUP_VALUES, "offsets_partition")
    groups = _differing(warehouse, "groups", earlier, later, ("group_id",), columns, tuple(_GROUP_VALUES), where)
    columns = ("committed_offset", "offsets_partition", "record_offset")
    offsets = _differing(warehouse, "committed_offsets", earlier, later, _OFFSET_KEY, columns, ("committed_offset",), where)
    gone_groups = {row["group_id"]: row["offsets_partition_before"] for row in groups if not row["is_after"]}
    gone_offsets = [row for row in offsets if not row["is_after"]]
    of_groups, of_offsets = _reasons(warehouse, earlier, later, gone_groups, gone_offsets)
    of_offsets |= _rewind_causes(warehouse, later, offsets)
    changes = [
        *(_group_change(row, of_groups) for row in groups),
        *(_offset_change(row, of_offsets) for row in offsets),
        *_pending_changes(warehouse, earlier, later, where),
        *_share_changes(warehouse, earlier, later, group_id, gone_groups),
        *(_topic_changes(warehouse, earlier, later) if group_id is None else ()),
    ]
    order = {change: number for number, change in enumerate(CHANGES)}
    return sorted(changes, key=lambda change: (order[change.change], change.group_id, change.topic or "", change.partition or 0))


def _differing(
    warehouse: Warehouse,
    table: str,
    earlier: Run,
    later: Run,
    key: Sequence[str],
    columns: Sequence[str],
    compared: Sequence[str],
    where: Sequence[Condition],
) -> list[dict[str, Any]]:
    """Return a row for each key that only one run has, or for which a compared column differs.

    The row has the key, ``<column>_before`` and ``<column>_after``, and whether each run has the key: ``is_before`` and ``is_after``.
    """
    sides = []
    for run, side in ((earlier, "before"), (later, "after")):
        rows = warehouse.read(table, columns=[*key, *columns], where=where, run=run)
        rows = rows.rename_columns([*key, *(f"{name}_{side}" for name in columns)])
        sides.append(rows.append_column(f"is_{side}", pc.is_valid(rows[key[0]])))
    pairs = sides[0].join(sides[1], list(key), join_type="full outer")
    for name in ("is_before", "is_after"):
        pairs = pairs.set_column(pairs.column_names.index(name), name, pc.fill_null(pairs[name], False))
    differs = pc.invert(pc.and_(pairs["is_before"], pairs["is_after"]))
    for name in compared:
        values = pairs[f"{name}_before"], pairs[f"{name}_after"]
        is_equal = pc.or_(pc.fill_null(pc.equal(*values), False), pc.and_(*map(pc.is_null, values)))
        differs = pc.or_(differs, pc.invert(is_equal))
    rows_that_differ: list[dict[str, Any]] = pairs.filter(differs).to_pylist()
    return rows_that_differ


def _group_change(row: _Row, reasons: Mapping[str, str]) -> Change:
    old_group, new_group = (
        {word: row[f"{column}_{side}"] for column, word in _GROUP_VALUES.items()} if row[f"is_{side}"] else None
        for side in ("before", "after")
    )
    why = None
    if old_group is None:
        change = "group_born"
    elif new_group is None:
        change, why = "group_gone", reasons[row["group_id"]]
    else:
        is_rebalance = {word for word in old_group if old_group[word] != new_group[word]} == {"generation"}
        change = "group_rebalanced" if is_rebalance else "group_changed"
    return Change(change, row["group_id"], None, None, old_group, new_group, why)


def _offset_change(row: _Row, reasons: Mapping[_OffsetKey, str]) -> Change:
    old_offset, new_offset, why = row["committed_offset_before"], row["committed_offset_after"], reasons.get(_key(row))
    if not row["is_after"]:
        change = "offset_gone"
    elif not row["is_before"]:
        change = "offset_new"
    else:
        change = "offset_forward" if new_offset > old_offset else "offset_rewound"
    return Change(change, *_key(row), old_offset, new_offset, why)


def _topic_changes(warehouse: Warehouse, earlier: Run, later: Run) -> Iterator[Change]:
    """Topics that the cluster's metadata had in one run and has no longer in the other, which must know every topic."""
    columns = ("topic", "topic_id", "is_deleted", "all_topics_known")
    earlier_rows, later_rows = (warehouse.read("topics", columns=columns, run=run).to_pylist() for run in (earlier, later))
    living = {row["topic_id"] for row in later_rows if not row["is_deleted"]}
    deleted = {row["topic_id"] for row in later_rows if row["is_deleted"]}
    for row in earlier_rows:
        is_known = row["topic_id"] in deleted or (later_rows and later_rows[0]["all_topics_known"])
        if not row["is_deleted"] and row["topic_id"] not in living and is_known:
            yield Change("topic_gone", "", row["topic"], None, None, None, None)


def _share_changes(warehouse: Warehouse, earlier: Run, later: Run, group_id: str | None, gone_groups: Container[str]) -> Iterator[Change]:
    """Positions of share groups that are gone or lower, or that stand still while the lag grows; none where a run had no copy of them."""
    if not all(warehouse.read("share_offsets", columns=["partition"], run=run).num_rows for run in (earlier, later)):
        return
    from groupcoord_spark.warehouse.sql import SnapshotInDuckDB

    sides: list[dict[tuple[str, str, int], _Row]] = []
    gone_topics: set[str] = set()
    for run in (earlier, later):
        rows = SnapshotInDuckDB(warehouse, run=run).rows(_SHARE_POSITIONS).to_pylist()
        positions = {(row["group_id"], row["topic_id"], row["partition"]): row for row in rows}
        sides.append({key: row for key, row in positions.items() if group_id in (None, key[0]) and row["remark"] != "topic_gone"})
        gone_topics = {key[1] for key, row in positions.items() if row["remark"] == "topic_gone"}
    gone_topics |= {row["topic_id"] for row in warehouse.read("topics", where=[("is_deleted", "=", True)], run=later).to_pylist()}
    earlier_rows, later_rows = sides
    for key, row in earlier_rows.items():
        place, current = (key[0], row["name"], key[2]), later_rows.get(key)
        if current is None:
            why = "group_deleted" if key[0] in gone_groups else "topic_deleted" if key[1] in gone_topics else NOT_KNOWN
            yield Change("share_gone", *place, row["start_offset"], None, why)
        elif (current["start_offset"] or 0) < (row["start_offset"] or 0):
            yield Change("share_reset", *place, row["start_offset"], current["start_offset"], None)
        elif (current["lag"] or 0) > (row["lag"] or 0) and all(current[name] == row[name] for name in _SHARE_PROGRESS):
            yield Change("share_stopped", *place, row["lag"], current["lag"], None)


def _pending_changes(warehouse: Warehouse, earlier: Run, later: Run, where: Sequence[Condition]) -> Iterator[Change]:
    """Offsets that are pending in one of the runs only, whichever transactions they wait in."""
    columns = (*_OFFSET_KEY, "committed_offset", "producer_id", "offsets_partition", "record_offset")
    sides: list[dict[_OffsetKey, _Row]] = []
    for run in (earlier, later):
        rows = warehouse.read("pending_offsets", columns=columns, where=where, run=run).to_pylist()
        # Where several transactions wait with one offset, the newest one stands for all.
        sides.append({_key(row): row for row in sorted(rows, key=lambda row: row["record_offset"])})
    earlier_rows, later_rows = sides
    for key in later_rows.keys() - earlier_rows.keys():
        yield Change("pending_new", *key, None, later_rows[key]["committed_offset"], None)
    gone = {key: row for key, row in earlier_rows.items() if key not in later_rows}
    ends = _transaction_ends(warehouse, later, gone) if gone else {}
    for key, row in gone.items():
        yield Change("pending_gone", *key, row["committed_offset"], None, ends.get(key, NOT_KNOWN))


def _transaction_ends(warehouse: Warehouse, later: Run, pending: Mapping[_OffsetKey, _Row]) -> dict[_OffsetKey, str]:
    """Return how the transaction of each pending offset ended, without offsets whose marker is missing from the history."""
    producers = sorted({row["producer_id"] for row in pending.values()})
    columns = ("offsets_partition", "incarnation", "record_offset", "producer_id", "result")
    markers: dict[tuple[int, Place], list[tuple[int, str]]] = {}
    for marker in warehouse.read("transactions", columns=columns, where=[("producer_id", "in", producers)], run=later).to_pylist():
        place = Place(marker["incarnation"], marker["offsets_partition"])
        markers.setdefault((marker["producer_id"], place), []).append((marker["record_offset"], marker["result"]))
    logs = _logs(warehouse, later)
    ends = {}
    for key, row in pending.items():
        place = Place(logs[row["offsets_partition"]].incarnation, row["offsets_partition"])
        if later_markers := [marker for marker in markers.get((row["producer_id"], place), ()) if marker[0] > row["record_offset"]]:
            ends[key] = min(later_markers)[1]
    return ends


def _reasons(
    warehouse: Warehouse, earlier: Run, later: Run, gone_groups: Mapping[str, int], gone_offsets: Sequence[_Row]
) -> tuple[dict[str, str], dict[_OffsetKey, str]]:
    """Return why each of these groups, and each of these offsets, is gone. ``gone_groups`` maps a group to its offsets partition."""
    if later.input_kind == InputKind.ADMIN:
        return dict.fromkeys(gone_groups, NO_LOG), {_key(row): NO_LOG for row in gone_offsets}
    group_ids = sorted({*gone_groups, *(row["group_id"] for row in gone_offsets)})
    if not group_ids:
        return {}, {}
    of_group: list[Condition] = [("group_id", "in", group_ids)]
    removals = removals_of(warehouse, later.cluster, group_ids)
    logs, older_logs = _logs(warehouse, later), _logs(warehouse, earlier)
    missing = {number for number, log in logs.items() if not log.has_records and older_logs[number].has_records}
    orphans = {_key(row) for row in warehouse.read("orphan_offsets", columns=_OFFSET_KEY, where=of_group, run=later).to_pylist()}
    tombstones = _newest_tombstones(removals, logs)
    due, vanished = _due(warehouse, earlier, later, of_group), _vanished(warehouse, earlier, later)
    of_offsets = {}
    for row in gone_offsets:
        number, key = row["offsets_partition_before"], _key(row)
        tombstone, reason = tombstones.get(key, (-1, NOT_KNOWN))
        if number in missing:
            reason = PARTITION_MISSING
        elif logs[number].incarnation > older_logs[number].incarnation:
            reason = "topic_begun_anew"
        elif tombstone < row["record_offset_before"]:
            reason = "orphaned" if key in orphans else NOT_KNOWN
        of_offsets[key] = _without_tombstone(key in due, number in vanished) if reason == NOT_KNOWN else reason
    of_groups = _reasons_of_groups(gone_groups, of_offsets, removals, logs)
    for group_id, number in gone_groups.items():
        if number in missing:
            of_groups[group_id] = PARTITION_MISSING
        elif of_groups[group_id] == NOT_KNOWN:
            of_groups[group_id] = _without_tombstone((group_id, None, None) in due, number in vanished)
    return of_groups, of_offsets


def _rewind_causes(warehouse: Warehouse, later: Run, offsets: Sequence[_Row]) -> dict[_OffsetKey, str]:
    """Return the cause of the newest rewind of each committed offset that is lower in the later run."""
    both = [row for row in offsets if row["is_before"] and row["is_after"]]
    lower = {_key(row): row for row in both if row["committed_offset_after"] < row["committed_offset_before"]}
    if not lower:
        return {}
    where: list[Condition] = [("group_id", "in", sorted({group_id for group_id, _, _ in lower})), ("kind", "=", "rewound")]
    columns = (*_OFFSET_KEY, "offsets_partition", "incarnation", "record_offset", "cause")
    logs = _logs(warehouse, later)
    newest: dict[_OffsetKey, tuple[int, str]] = {}
    for event in warehouse.read("offset_events", columns=columns, where=where, run=later).to_pylist():
        key, record_offset = _key(event), event["record_offset"]
        row = lower.get(key)
        if row is not None and event["incarnation"] == logs[event["offsets_partition"]].incarnation:
            # A log that was begun again has lower record offsets than the commit of the earlier run.
            first = row["record_offset_before"] if row["record_offset_before"] < row["record_offset_after"] else -1
            if first < record_offset <= row["record_offset_after"]:
                newest[key] = max(newest.get(key, (-1, "")), (record_offset, event["cause"]))
    return {key: cause for key, (_, cause) in newest.items()}


def _due(warehouse: Warehouse, earlier: Run, later: Run, of_group: Sequence[Condition]) -> set[tuple[str, str | None, int | None]]:
    """Return the removals due by the later run: group, topic and partition of an offset, or (group, None, None)."""
    moment = datetime.fromtimestamp(later.as_of_ms / 1000, UTC)
    offsets = warehouse.read("offset_expirations", columns=_OFFSET_KEY, where=[*of_group, ("expires_at", "<=", moment)], run=earlier)
    groups = warehouse.read("group_expirations", columns=["group_id"], where=[*of_group, ("removed_at", "<=", moment)], run=earlier)
    return {*map(_key, offsets.to_pylist()), *((group_id, None, None) for group_id in groups["group_id"].to_pylist())}


def _vanished(warehouse: Warehouse, earlier: Run, later: Run) -> set[int]:
    """Return the offsets partitions in which live keys lost their records in a run after the first one, up to the second."""
    runs = warehouse.finished_runs(later.cluster)
    between = [run.run_id for run in runs if earlier.finished_at_ms < run.finished_at_ms <= later.finished_at_ms]
    where: list[Condition] = [("code", "=", "keys_vanished"), ("run_id", "in", between)]
    return set(warehouse.read("warnings", columns=["offsets_partition"], where=where, run=later)["offsets_partition"].to_pylist())


def _without_tombstone(is_due: bool, has_vanished: bool) -> str:
    return "expiry_due" if is_due else "vanished" if has_vanished else NOT_KNOWN


class _Log(NamedTuple):
    """What a run read of one offsets partition."""

    incarnation: int = 0
    end_offset: int = 0
    has_records: bool = False


def _logs(warehouse: Warehouse, run: Run) -> dict[int, _Log]:
    """Offsets partition -> what the run read of it; of a partition that is not in the run's tables nothing is known."""
    columns = ["offsets_partition", "incarnation", "end_offset", "first_offset"]
    rows = warehouse.read("offsets_partitions", columns=columns, run=run).to_pylist()
    logs = {row["offsets_partition"]: _Log(row["incarnation"], row["end_offset"], row["first_offset"] is not None) for row in rows}
    return defaultdict(_Log, logs)


def _newest_tombstones(removals: Removals, logs: Mapping[int, _Log]) -> dict[_OffsetKey, tuple[int, str]]:
    """Offset -> record offset and reason of its newest tombstone that the run had read."""
    newest: dict[_OffsetKey, tuple[int, str]] = {}
    for removal in removals.offsets:
        if _had_read(logs, removal):
            key = removal.group_id, removal.topic, removal.partition
            newest[key] = max(newest.get(key, (-1, "")), (removal.record_offset, _reason_of(removal)))
    return newest


def _reasons_of_groups(
    gone: Iterable[str], of_offsets: Mapping[_OffsetKey, str], removals: Removals, logs: Mapping[int, _Log]
) -> dict[str, str]:
    """Return why each group is gone: the cause of its own tombstone, or the one cause that took all of its offsets.

    A cleanup also removes an empty group whose offsets are gone because the topic or they were deleted: that is the cause then.
    """
    tombstones: dict[str, tuple[int, str]] = {}
    for removal in removals.groups:
        if _had_read(logs, removal):
            newest = tombstones.get(removal.group_id, (-1, ""))
            tombstones[removal.group_id] = max(newest, (removal.record_offset, _reason_of(removal)))
    of_its_offsets: dict[str, set[str]] = {}
    for (group_id, _, _), reason in of_offsets.items():
        of_its_offsets.setdefault(group_id, set()).add(reason)
    reasons = {}
    for group_id in gone:
        reason, offset_reasons = tombstones.get(group_id, (-1, NOT_KNOWN))[1], of_its_offsets.get(group_id, set())
        of_offsets_alone = next(iter(offset_reasons)) if len(offset_reasons) == 1 else NOT_KNOWN
        is_cleanup_after = reason == "expired" and of_offsets_alone in ("topic_deleted", "offsets_deleted")
        reasons[group_id] = of_offsets_alone if reason == NOT_KNOWN or is_cleanup_after else reason
    return reasons


def _had_read(logs: Mapping[int, _Log], removal: OffsetRemoval | GroupRemoval) -> bool:
    log = logs[removal.place.offsets_partition]
    return removal.place.incarnation == log.incarnation and removal.record_offset < log.end_offset


def _reason_of(removal: OffsetRemoval | GroupRemoval) -> str:
    """Return the word of REASONS for the cause of a removal."""
    return NOT_KNOWN if removal.cause == "unknown" else removal.cause


def _key(row: _Row) -> _OffsetKey:
    return row["group_id"], row["topic"], row["partition"]
