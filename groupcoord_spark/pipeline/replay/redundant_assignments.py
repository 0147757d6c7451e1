"""Records of consumer groups (KIP-848) that need not be replayed, because no partition of the group has two owners.

A current assignment (key type 8) is refused if it has a partition that another member still owns (rule R-3.14 of
docs/reference/replay-rules.md). So the effect of an assignment depends on all assignments before it, and a reader drops none of them. The
replay knows the state before a batch, and one pass over the columns of the batch shows for nearly every group that no partition has two
owners. Then no record of the group is refused, and these records are redundant: an assignment that a later one of the member replaces, all
records of a member that joins and leaves in the batch, and a setting that a later record sets again.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from groupcoord_spark.coordinator.groups.consumer import ReplayedConsumerGroup
from groupcoord_spark.coordinator.replay import PartitionReplay
from groupcoord_spark.pipeline.read.decode import DecodedChunk
from groupcoord_spark.pipeline.read.superseded import stable_order
from groupcoord_spark.pipeline.replay.unchecked_ownership import UncheckedConsumerGroup
from groupcoord_spark.protocol import fast_path
from groupcoord_spark.protocol.primitives import uuid_bytes
from groupcoord_spark.protocol.programs import programs_of_values
from groupcoord_spark.protocol.record_types import CONSUMER_GROUP_KEY_TYPES, KeyType
from groupcoord_spark.protocol.slices import Ints, Mask, Slices

WHOLE_GROUP_KEY_TYPES = (KeyType.CONSUMER_GROUP_METADATA, KeyType.CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA)
SETTING_KEY_TYPES = (
    KeyType.CONSUMER_GROUP_METADATA,
    KeyType.CONSUMER_GROUP_PARTITION_METADATA,
    KeyType.CONSUMER_GROUP_MEMBER_METADATA,
    KeyType.CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA,
    KeyType.CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER,
    KeyType.CONSUMER_GROUP_REGULAR_EXPRESSION,
)
"""Group epoch, partition metadata, a member's own record, the epoch of the target assignment, a member's target assignment, and a resolved
expression: a later value replaces an earlier one."""
MEMBER_KEY_TYPES = (
    KeyType.CONSUMER_GROUP_MEMBER_METADATA,
    KeyType.CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER,
    KeyType.CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT,
)
NEVER = np.iinfo(np.int64).max
LEAST_PARTITION_BYTES = 4
"""Bytes of a partition in an assignment."""

# Odd factors that mix topic id, group and partition into one 64-bit number.
MIX_HIGH, MIX_LOW, MIX_GROUP = (np.int64(odd) for odd in (-7046029254386353131, -4417276706812531889, 1609587929392839161))


class RedundantRecords(NamedTuple):
    """The redundant records of a batch.

    without_collisions: groups without two owners of a partition during the batch. others: groups that have, or may have, such a partition.
    is_redundant: bool[n], rows that need not be replayed.
    """

    without_collisions: frozenset[str]
    others: frozenset[str]
    is_redundant: Mask


class _MemberRecords(NamedTuple):
    """The rows about single members, sorted by member and then in the order of the log. segment: the number of the row's member."""

    row: Ints
    segment: Ints
    begin: Ints
    """Position of the first row of the same member, among these rows."""
    end: Ints
    """Position after the last row of the same member."""
    key_type: npt.NDArray[np.int16]
    is_tombstone: Mask


def find_redundant_records(decoded: DecodedChunk, coordinator: PartitionReplay) -> RedundantRecords:
    """Return the redundant records of consumer groups in a batch before ``coordinator`` replays it.

    All records of a group are replayed if anything about the group is unusual: a record that is not accepted or of another group type, a
    tombstone of the group or of its target assignment, or a partition that already has two owners. A process without the compiled loops,
    because it has few rows, replays all records of all groups.
    """
    kinds = decoded.kinds
    is_redundant = np.zeros(len(kinds.key_type), np.bool_)
    every = np.flatnonzero((kinds.key_type >= KeyType.GROUP_METADATA) & (kinds.group_code >= 0) & ~kinds.is_control)
    own = every[np.isin(kinds.key_type[every], list(CONSUMER_GROUP_KEY_TYPES))]
    if not len(own):
        return RedundantRecords(frozenset(), frozenset(), is_redundant)
    groups = decoded.names.group_ids.to_pylist()
    members = decoded.names.member_ids.to_pylist()
    is_touched = np.zeros(len(groups), np.bool_)
    is_touched[kinds.group_code[own]] = True
    is_candidate = is_touched.copy()
    is_odd = ~kinds.coordinator_accepts[every] | ~np.isin(kinds.key_type[every], list(CONSUMER_GROUP_KEY_TYPES))
    is_odd |= kinds.is_tombstone[every] & np.isin(kinds.key_type[every], WHOLE_GROUP_KEY_TYPES)
    is_candidate[kinds.group_code[every[is_odd]]] = False
    if fast_path.loops_for(len(own)) is None:
        is_candidate[:] = False
    state: dict[int, ReplayedConsumerGroup | None] = {}
    for code in np.flatnonzero(is_candidate).tolist():
        group = coordinator.group(groups[code])
        if isinstance(group, UncheckedConsumerGroup) and group.is_orderly:
            state[code] = group
        elif group is None or group.is_simple:
            state[code] = None
        else:
            is_candidate[code] = False

    own = own[is_candidate[kinds.group_code[own]]]
    member_records = _records_by_member(decoded, own)
    colliding = _groups_with_collisions(decoded, member_records, state, members)
    is_candidate[colliding] = False
    makes_group = _rows_that_make_groups(decoded, own, state)
    _mark_redundant(is_redundant, member_records, decoded, state, members, makes_group)
    may_be_refused = _target_epochs_that_may_be_refused(decoded, own)
    is_redundant[_superseded_settings(decoded, own, may_be_refused)] = True
    last_own, applied = np.full(len(groups), -1, np.int64), own[~may_be_refused]
    last_own[kinds.group_code[applied]] = applied
    for kept_rows in (makes_group, last_own):  # the state has the record offset of the last record of each group that is not refused
        is_redundant[kept_rows[kept_rows >= 0]] = False
    group_code = kinds.group_code[own]
    is_redundant[own[~is_candidate[group_code]]] = False
    without, others = (
        frozenset(groups[code] for code in np.flatnonzero(chosen).tolist()) for chosen in (is_candidate, is_touched & ~is_candidate)
    )
    return RedundantRecords(without, others, is_redundant)


def _records_by_member(decoded: DecodedChunk, own: Ints) -> _MemberRecords:
    kinds = decoded.kinds
    rows = own[np.isin(kinds.key_type[own], MEMBER_KEY_TYPES)]
    of_member = _member_of(decoded, rows)
    order = np.argsort(of_member, kind="stable")
    rows, of_member = rows[order], of_member[order]
    begins = np.r_[True, of_member[1:] != of_member[:-1]][: len(rows)]
    segment = np.cumsum(begins) - 1
    first = np.flatnonzero(begins)
    last = np.r_[first[1:], len(rows)]
    return _MemberRecords(rows, segment, first[segment], last[segment], kinds.key_type[rows], kinds.is_tombstone[rows])


def _member_of(decoded: DecodedChunk, rows: Ints) -> Ints:
    """Return a number for the group and member of each row."""
    kinds = decoded.kinds
    return kinds.group_code[rows] * (int(kinds.member_code.max()) + 1) + kinds.member_code[rows]


def _groups_with_collisions(
    decoded: DecodedChunk,
    member_records: _MemberRecords,
    state: dict[int, ReplayedConsumerGroup | None],
    members: list[str],
) -> Ints:
    """Return codes of the groups with a partition that has, or may have, two owners at once.

    A member owns the partitions of an assignment from its row to the member's next assignment or tombstone. The partitions that the member
    owns before the batch it owns up to its first row.
    """
    kinds = decoded.kinds
    is_assignment = member_records.key_type == KeyType.CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT
    columns = (member_records.row, member_records.segment, ~member_records.is_tombstone)
    rows, segment, is_value = (column[is_assignment] for column in columns)
    is_followed = segment[1:] == segment[:-1]
    until = np.full(len(rows), NEVER)
    until[:-1][is_followed] = rows[1:][is_followed]
    begins = rows[np.r_[True, ~is_followed][: len(rows)]]
    of_begins = (kinds.group_code[begins].tolist(), kinds.member_code[begins].tolist())
    first_row = {(group, members[member]): row for group, member, row in zip(*of_begins, begins.tolist(), strict=True)}
    # sorted by group, and in the order of the log within a group
    since, until = rows[is_value], until[is_value]
    in_order = np.lexsort((since, kinds.group_code[since]))
    since, until = since[in_order], until[in_order]
    assignments = _Assignments(decoded.value_version[since], decoded.records.value.take(since), kinds.group_code[since], since, until)
    return _groups_with_two_owners(assignments, _owned_before(state, np.unique(assignments.group).tolist(), first_row))


class _Assignments(NamedTuple):
    """Current assignments, sorted by group and then by row. Their partitions are owned from row ``since`` up to ``until``."""

    value_version: npt.NDArray[np.int16]
    value: Slices
    group: Ints
    since: Ints
    until: Ints


class _OwnedPartitions(NamedTuple):
    """Partitions that members own before the batch, by the numbers of _partition_numbers, up to row ``until``."""

    name: Ints
    until: Ints


def _groups_with_two_owners(assignments: _Assignments, owned_before: _OwnedPartitions) -> Ints:
    """Return codes of the groups where a partition gets an owner before its previous owner gives it up, or with odd values."""
    loops = fast_path.load()
    assert loops is not None  # find_redundant_records has asked
    is_odd, value = np.zeros(len(assignments.value), np.bool_), assignments.value
    lengths = value.lengths()
    slots = 1 << (2 * (int(lengths.sum()) // LEAST_PARTITION_BYTES + len(owned_before.name)) + 1).bit_length()
    names, untils = np.empty(slots, np.int64), np.empty(slots, np.int64)
    stack, notes = np.empty(loops.DEEPEST, np.int64), np.empty(int(lengths.max(initial=0)) // LEAST_PARTITION_BYTES, np.int64)
    loops.claim_partitions(
        value.data, value.start, value.end, assignments.value_version, assignments.group, assignments.since, assignments.until,
        owned_before.name, owned_before.until,
        *programs_of_values(), stack, notes, names, untils, is_odd,
    )  # fmt: skip
    return assignments.group[is_odd]


def _partition_numbers(topic_id: str, partitions: Sequence[int], group: int) -> Ints:
    """int64, a number for each partition of a group's topic. If two are equal by accident, the group is replayed in full."""
    high, low = np.frombuffer(uuid_bytes(topic_id), ">i8").astype(np.int64)[:, np.newaxis]
    mixed = (high * MIX_HIGH) ^ (low * MIX_LOW) ^ (np.array([group]) * MIX_GROUP)
    names: Ints = (mixed ^ (mixed >> 29)) * MIX_HIGH + np.array(partitions, np.int64)
    return names


def _owned_before(
    state: dict[int, ReplayedConsumerGroup | None], groups: list[int], first_row: dict[tuple[int, str], int]
) -> _OwnedPartitions:
    """Return the partitions that members of the groups own before the batch, by _partition_numbers, and the row at which each ownership
    ends."""
    names, until = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for code in groups:
        group = state.get(code)
        for member_id, member in group.members.items() if group else ():
            for topic_id, partitions in member.owned_partitions():
                names.append(_partition_numbers(topic_id, partitions, code))
                until.append(np.full(len(partitions), first_row.get((code, member_id), NEVER)))
    return _OwnedPartitions(np.concatenate(names), np.concatenate(until))


def _rows_that_make_groups(decoded: DecodedChunk, own: Ints, state: dict[int, ReplayedConsumerGroup | None]) -> Ints:
    """By group code the row of the value that creates the group; -1 for groups that already are consumer groups."""
    kinds = decoded.kinds
    values = own[~kinds.is_tombstone[own]][::-1]
    makes_group = np.full(len(decoded.names.group_ids), -1, np.int64)
    makes_group[kinds.group_code[values]] = values  # in reverse order: the first value wins
    makes_group[[code for code, group in state.items() if group is not None]] = -1
    return makes_group


def _superseded_settings(decoded: DecodedChunk, own: Ints, may_be_refused: Mask) -> Ints:
    """Return the rows of SETTING_KEY_TYPES that a later value of the same key replaces.

    The target assignment before and after a removal of its member are different, because the removal depends on the target (rule R-3.11).
    The first value of a member's own record stays, because it makes the member. An epoch that ``may_be_refused`` neither is replaced nor
    replaces another.
    """
    kinds = decoded.kinds
    is_removal = kinds.is_tombstone[own] & (kinds.key_type[own] == KeyType.CONSUMER_GROUP_MEMBER_METADATA)
    by_member = stable_order(kinds.member_code[own])
    removals = np.empty(len(own), np.int64)
    removals[by_member] = np.cumsum(is_removal[by_member])
    is_setting = ~kinds.is_tombstone[own] & np.isin(kinds.key_type[own], SETTING_KEY_TYPES) & ~may_be_refused
    rows, removals = own[is_setting], removals[is_setting]
    key = kinds.key_code[rows]
    by_key = stable_order(key)
    now, following = by_key[:-1], by_key[1:]
    is_followed = (key[now] == key[following]) & (removals[now] == removals[following])
    has_earlier = np.r_[False, is_followed[:-1]][: len(is_followed)]
    is_member = kinds.key_type[rows[now]] == KeyType.CONSUMER_GROUP_MEMBER_METADATA
    superseded: Ints = rows[now[is_followed & (has_earlier | ~is_member)]]
    return superseded


def _target_epochs_that_may_be_refused(decoded: DecodedChunk, own: Ints) -> Mask:
    """bool[len(own)]: values with the epoch of the target assignment, but those that R-3.12 refuses in no release.

    Those are as brokers write them, version, epoch, and no tagged field or the timestamp alone, without a negative number.
    """
    may_be_refused: Mask = decoded.kinds.key_type[own] == KeyType.CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA
    values = decoded.records.value.take(own)
    for size, tags, signs in ((7, b"\0", [2]), (17, b"\1\0\x08", [2, 9])):
        rows = np.flatnonzero(may_be_refused & (values.lengths() == size))
        texts = values.data[values.start[rows, np.newaxis] + np.arange(size)]
        has_these_tags = (texts[:, 6 : 6 + len(tags)] == np.frombuffer(tags, np.uint8)).all(axis=1)
        may_be_refused[rows[has_these_tags & (texts[:, signs] < 0x80).all(axis=1)]] = False
    return may_be_refused


def _mark_redundant(
    is_redundant: Mask,
    member_records: _MemberRecords,
    decoded: DecodedChunk,
    state: dict[int, ReplayedConsumerGroup | None],
    members: list[str],
    makes_group: Ints,
) -> None:
    """Set ``is_redundant`` for records of members that have no effect if no partition of the group has two owners.

    These are all records of a member up to a tombstone that removes the member for certain (of a member from before the batch, all but the
    tombstones), and an assignment that another assignment of the member follows. All records of a member are kept if one of them creates
    the group (``makes_group``).
    """
    n = len(member_records.row)
    if not n:
        return
    kinds = decoded.kinds
    place = np.arange(n)
    is_assignment = member_records.key_type == KeyType.CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT

    def last_before(chosen: Mask) -> Ints:
        """Position of the last chosen row of the same member before each row; -1 for none."""
        last = np.r_[-1, np.maximum.accumulate(np.where(chosen, place, -1))[:-1]]
        return np.where(last >= member_records.begin, last, -1)

    # The tombstone of a member removes the member if its current and its target assignment have been removed before.
    is_value = ~member_records.is_tombstone
    last_sign = last_before(is_assignment | ((member_records.key_type == KeyType.CONSUMER_GROUP_MEMBER_METADATA) & is_value))
    last_target = last_before(member_records.key_type == KeyType.CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER)
    leaves = (member_records.key_type == KeyType.CONSUMER_GROUP_MEMBER_METADATA) & member_records.is_tombstone
    surely = leaves & (last_sign >= 0) & ~is_value[last_sign] & (last_target >= 0) & ~is_value[last_target]
    is_sure = np.ones(int(member_records.segment[-1]) + 1, np.bool_)
    is_sure[member_records.segment[leaves & ~surely]] = False
    last_leave = np.maximum.accumulate(np.where(surely, place, -1))[member_records.end - 1]
    has_gone = (place <= last_leave) & (last_leave >= member_records.begin)

    is_sure[member_records.segment[makes_group[kinds.group_code[member_records.row]] == member_records.row]] = False

    is_known = np.zeros(len(is_sure), np.bool_)
    segments, firsts = np.unique(member_records.segment[has_gone], return_index=True)
    rows = member_records.row[has_gone][firsts]
    for segment, group_code, member_code in zip(
        segments.tolist(), kinds.group_code[rows].tolist(), kinds.member_code[rows].tolist(), strict=True
    ):
        group = state[group_code]
        if group is not None:
            is_known[segment] = members[member_code] in group.members or members[member_code] in group.targets
    next_assignment = np.minimum.accumulate(np.where(is_assignment, place, n)[::-1])[::-1]
    following = np.r_[next_assignment[1:], n]
    is_replaced = is_assignment & is_value & (following < member_records.end) & is_value[np.minimum(following, n - 1)]
    drop = is_sure[member_records.segment] & np.where(has_gone, is_value | ~is_known[member_records.segment], is_replaced)
    is_redundant[member_records.row[drop]] = True
