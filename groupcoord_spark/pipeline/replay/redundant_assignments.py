"""Which consumer groups surely have no partition with two owners, and which of their records then need not be replayed.

A current assignment (key type 8) is refused where it takes a partition that another member still owns (R-3.14), so each of them depends
on all before it, and a reader may drop none. Here, where the state before the records is known, one look over their columns tells for
nearly every group that none of them collides. Then a later assignment of a member replaces the earlier one whole, of a member that
came and went nothing is left, and what only sets something is replaced by what sets it again: a loader refuses none of these records.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from groupcoord_spark.coordinator.groups.consumer import ConsumerGroup
from groupcoord_spark.coordinator.replay import PartitionReplay
from groupcoord_spark.log import Records
from groupcoord_spark.pipeline.read.decode import DecodedChunk
from groupcoord_spark.pipeline.read.superseded import stable_order
from groupcoord_spark.pipeline.replay.unchecked_ownership import UncheckedConsumerGroup
from groupcoord_spark.protocol import DecodeError, decode_value, fast_path
from groupcoord_spark.protocol.primitives import uuid_bytes
from groupcoord_spark.protocol.programs import programs_of_values
from groupcoord_spark.protocol.record_types import CONSUMER_GROUP_KEY_TYPES, KeyType
from groupcoord_spark.protocol.slices import Mask, Slices

Ints = npt.NDArray[np.int64]

WHOLE_GROUP_KEY_TYPES = (KeyType.CONSUMER_GROUP_METADATA, KeyType.CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA)
SETTING_KEY_TYPES = (
    KeyType.CONSUMER_GROUP_METADATA,
    KeyType.CONSUMER_GROUP_PARTITION_METADATA,
    KeyType.CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER,
    KeyType.CONSUMER_GROUP_REGULAR_EXPRESSION,
)
"""Group epoch, partition metadata, a member's target and a resolved expression: values that only set what a later value sets again."""
MEMBER_KEY_TYPES = (
    KeyType.CONSUMER_GROUP_MEMBER_METADATA,
    KeyType.CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER,
    KeyType.CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT,
)
NEVER = np.iinfo(np.int64).max
BEFORE = -1
BYTES_AT_ONCE = 256 << 10
"""Of assignments that are laid out partition by partition, which takes many times as much."""
LEAST_CLAIM_BYTES = 4
"""What a partition takes in an assignment."""

# Odd numbers to mix the parts of a name into one.
MIX_HIGH, MIX_LOW, MIX_GROUP = (np.int64(odd) for odd in (-7046029254386353131, -4417276706812531889, 1609587929392839161))


class RedundantRecords(NamedTuple):
    """What one look at a batch tells.

    without_collisions: groups of which no record in it collides; others: those of which one does or may. needless: bool, rows that may be
    left out.
    """

    without_collisions: frozenset[str]
    others: frozenset[str]
    needless: Mask


class _Lives(NamedTuple):
    """Rows about single members, member by member, in the order of the log; ``segment`` numbers the members."""

    row: Ints
    segment: Ints
    begin: Ints
    """Place of the first row of each row's member, among these rows."""
    end: Ints
    """Place after its last."""
    key_type: npt.NDArray[np.int16]
    is_tombstone: Mask


def find_redundant_records(records: Records, decoded: DecodedChunk, coordinator: PartitionReplay) -> RedundantRecords:
    """Look over the records of consumer groups that are about to be replayed by ``coordinator``.

    A group is left to the record-by-record rule whenever anything about it is out of the ordinary: records that do not apply or are of
    another kind of group, tombstones of the group or its target assignment, a state with collisions behind it.
    """
    kinds = decoded.kinds
    needless = np.zeros(len(kinds.key_type), np.bool_)
    every = np.flatnonzero((kinds.key_type >= KeyType.GROUP_METADATA) & (kinds.group_code >= 0) & ~kinds.is_control)
    own = every[np.isin(kinds.key_type[every], list(CONSUMER_GROUP_KEY_TYPES))]
    if not len(own):
        return RedundantRecords(frozenset(), frozenset(), needless)
    groups = decoded.names.group_ids.to_pylist()
    members = decoded.names.member_ids.to_pylist()
    is_touched = np.zeros(len(groups), np.bool_)
    is_touched[kinds.group_code[own]] = True
    is_candidate = is_touched.copy()
    is_odd = ~kinds.coordinator_accepts[every] | ~np.isin(kinds.key_type[every], list(CONSUMER_GROUP_KEY_TYPES))
    is_odd |= kinds.is_tombstone[every] & np.isin(kinds.key_type[every], WHOLE_GROUP_KEY_TYPES)
    is_candidate[kinds.group_code[every[is_odd]]] = False
    state: dict[int, ConsumerGroup | None] = {}
    for code in np.flatnonzero(is_candidate).tolist():
        group = coordinator.group(groups[code])
        if isinstance(group, UncheckedConsumerGroup) and group.is_orderly:
            state[code] = group
        elif group is None or group.is_simple:
            state[code] = None
        else:
            is_candidate[code] = False

    own = own[is_candidate[kinds.group_code[own]]]
    lives = _lives_of_members(decoded, own)
    colliding = _groups_with_collisions(records, decoded, lives, state, members)
    is_candidate[colliding] = False
    makes_group = _rows_that_make_groups(decoded, own, state)
    _mark_needless(needless, lives, decoded, state, members, makes_group)
    needless[_superseded_settings(decoded, own)] = True
    last_own = np.full(len(groups), -1, np.int64)
    last_own[kinds.group_code[own]] = own
    for stays in (makes_group, last_own):  # a group tells the place of its last record
        needless[stays[stays >= 0]] = False
    of_group = kinds.group_code[own]
    needless[own[~is_candidate[of_group]]] = False
    without, others = (
        frozenset(groups[code] for code in np.flatnonzero(chosen).tolist()) for chosen in (is_candidate, is_touched & ~is_candidate)
    )
    return RedundantRecords(without, others, needless)


def _lives_of_members(decoded: DecodedChunk, own: Ints) -> _Lives:
    kinds = decoded.kinds
    rows = own[np.isin(kinds.key_type[own], MEMBER_KEY_TYPES)]
    of_member = _member_of(decoded, rows)
    order = np.argsort(of_member, kind="stable")
    rows, of_member = rows[order], of_member[order]
    begins = np.r_[True, of_member[1:] != of_member[:-1]][: len(rows)]
    segment = np.cumsum(begins) - 1
    first = np.flatnonzero(begins)
    last = np.r_[first[1:], len(rows)]
    return _Lives(rows, segment, first[segment], last[segment], kinds.key_type[rows], kinds.is_tombstone[rows])


def _member_of(decoded: DecodedChunk, rows: Ints) -> Ints:
    """A number for the group and member of each row."""
    kinds = decoded.kinds
    return kinds.group_code[rows] * (int(kinds.member_code.max()) + 1) + kinds.member_code[rows]


def _groups_with_collisions(
    records: Records, decoded: DecodedChunk, lives: _Lives, state: dict[int, ConsumerGroup | None], members: list[str]
) -> Ints:
    """Codes of groups in which a partition is, or may be, in two hands at once.

    What a value names is held from its record to the member's next one; what the member held before these records, up to its first.
    """
    kinds = decoded.kinds
    is_assignment = lives.key_type == KeyType.CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT
    rows, segment, is_value = lives.row[is_assignment], lives.segment[is_assignment], ~lives.is_tombstone[is_assignment]
    is_followed = segment[1:] == segment[:-1]
    until = np.full(len(rows), NEVER)
    until[:-1][is_followed] = rows[1:][is_followed]
    # group by group, each in the order of the log, in which the claims of a partition then stay as well
    value_rows, until_next = rows[is_value], until[is_value]
    in_order = np.lexsort((value_rows, kinds.group_code[value_rows]))
    value_rows, until_next = value_rows[in_order], until_next[in_order]
    begins = rows[np.r_[True, ~is_followed][: len(rows)]]
    of_begins = (kinds.group_code[begins].tolist(), kinds.member_code[begins].tolist())
    first_row = {(group, members[member]): row for group, member, row in zip(*of_begins, begins.tolist(), strict=True)}
    colliding = [np.zeros(0, np.int64)]
    for part in _whole_groups(kinds.group_code[value_rows], records.value.take(value_rows).lengths()):
        claims = _Claims(
            decoded.value_version[value_rows[part]],
            records.value.take(value_rows[part]),
            kinds.group_code[value_rows[part]],
            value_rows[part],
            until_next[part],
        )
        before = list(_held_before(state, np.unique(claims.group).tolist(), first_row))
        held = _Held(*map(np.concatenate, zip(*before, strict=True))) if before else _NOTHING_HELD
        colliding.append(_clashing(claims, held))
    return np.concatenate(colliding)


class _Claims(NamedTuple):
    """Current assignments, group by group and in the order of the log: what each names is held from row ``since`` up to ``until``."""

    value_version: npt.NDArray[np.int16]
    value: Slices
    group: Ints
    since: Ints
    until: Ints


class _Held(NamedTuple):
    """Partitions held before the batch, by the numbers of _names, up to a row of it."""

    name: Ints
    until: Ints


_NOTHING_HELD = _Held(*[np.zeros(0, np.int64)] * 2)


def _clashing(claims: _Claims, held: _Held) -> Ints:
    """Codes of groups in which a partition is claimed before the claim before it has ended, or whose values look unusual."""
    is_odd = np.zeros(len(claims.value), np.bool_)
    if loops := fast_path.loops_for(len(is_odd)):
        value = claims.value
        lengths = value.lengths()
        slots = 1 << (2 * (int(lengths.sum()) // LEAST_CLAIM_BYTES + len(held.name)) + 1).bit_length()
        names, untils = np.empty(slots, np.int64), np.empty(slots, np.int64)
        stack, notes = np.empty(loops.DEEPEST, np.int64), np.empty(int(lengths.max(initial=0)) // LEAST_CLAIM_BYTES, np.int64)
        loops.take_partitions(
            value.data, value.start, value.end, claims.value_version, claims.group, claims.since, claims.until, held.name, held.until,
            *programs_of_values(), stack, notes, names, untils, is_odd,
        )  # fmt: skip
    else:
        ends = dict(zip(held.name.tolist(), held.until.tolist(), strict=True))
        for row, (group, since, until) in enumerate(zip(claims.group.tolist(), claims.since.tolist(), claims.until.tolist(), strict=True)):
            try:
                decoded = decode_value(KeyType.CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT, claims.value.row(row))
            except DecodeError:
                decoded = None
            if decoded is None or decoded.findings:
                is_odd[row] = True
                continue
            for topic in (*decoded.fields["assigned_partitions"], *decoded.fields["partitions_pending_revocation"]):
                for name in _names(topic["topic_id"], topic["partitions"], group).tolist():
                    is_odd[row] |= since < ends.get(name, BEFORE)
                    ends[name] = until
    return claims.group[is_odd]


def _whole_groups(group: Ints, lengths: Ints) -> Iterator[slice]:
    """The rows, sorted by group, in parts of whole groups and about BYTES_AT_ONCE."""
    if not len(group):
        return
    begins = np.flatnonzero(np.r_[True, group[1:] != group[:-1]])
    part = (np.cumsum(lengths)[begins] - lengths[begins]) // BYTES_AT_ONCE
    first = begins[np.r_[True, part[1:] != part[:-1]]].tolist()
    yield from (slice(begin, end) for begin, end in pairwise([*first, len(group)]))


def _names(topic_id: str, partitions: Sequence[int], group: int) -> Ints:
    """A number for each of these partitions of a group's topic; two that are equal by accident only look like a collision."""
    high, low = np.frombuffer(uuid_bytes(topic_id), ">i8").astype(np.int64)[:, np.newaxis]
    mixed = (high * MIX_HIGH) ^ (low * MIX_LOW) ^ (np.array([group]) * MIX_GROUP)
    names: Ints = (mixed ^ (mixed >> 29)) * MIX_HIGH + np.array(partitions, np.int64)
    return names


def _held_before(
    state: dict[int, ConsumerGroup | None], groups: list[int], first_row: dict[tuple[int, str], int]
) -> Iterator[tuple[Ints, ...]]:
    """The columns of _Held for each topic of each member of the groups."""
    for code in groups:
        group = state.get(code)
        for member_id, member in group.members.items() if group else ():
            until = first_row.get((code, member_id), NEVER)
            for topic_id, partitions in member.owned_partitions():
                names = _names(topic_id, partitions, code)
                yield names, np.full(len(names), until)


def _rows_that_make_groups(decoded: DecodedChunk, own: Ints, state: dict[int, ConsumerGroup | None]) -> Ints:
    """By group code the row of the first value of each group that is no consumer group yet; -1 for the others."""
    kinds = decoded.kinds
    values = own[~kinds.is_tombstone[own]][::-1]
    makes_group = np.full(len(decoded.names.group_ids), -1, np.int64)
    makes_group[kinds.group_code[values]] = values  # backwards, so that the first one stands
    makes_group[[code for code, group in state.items() if group is not None]] = -1
    return makes_group


def _superseded_settings(decoded: DecodedChunk, own: Ints) -> Ints:
    """Rows that only set something which a later value of their key sets again.

    A member's target is told apart before and after each removal of the member, which asks whether the target is there (R-3.11).
    """
    kinds = decoded.kinds
    is_removal = kinds.is_tombstone[own] & (kinds.key_type[own] == KeyType.CONSUMER_GROUP_MEMBER_METADATA)
    by_member = stable_order(kinds.member_code[own])
    removals = np.empty(len(own), np.int64)
    removals[by_member] = np.cumsum(is_removal[by_member])
    is_setting = ~kinds.is_tombstone[own] & np.isin(kinds.key_type[own], SETTING_KEY_TYPES)
    rows, removals = own[is_setting], removals[is_setting]
    key = kinds.key_code[rows]
    by_key = stable_order(key)
    now, following = by_key[:-1], by_key[1:]
    superseded: Ints = rows[now[(key[now] == key[following]) & (removals[now] == removals[following])]]
    return superseded


def _mark_needless(
    needless: Mask,
    lives: _Lives,
    decoded: DecodedChunk,
    state: dict[int, ConsumerGroup | None],
    members: list[str],
    makes_group: Ints,
) -> None:
    """Set ``needless`` for members' records that leave no trace where nothing collides.

    That is all of a member's records up to a tombstone that surely removes it (of one that was there before, all but the tombstones), and
    an assignment that another one of the member follows. Of a member with a record in ``makes_group`` all records stay.
    """
    n = len(lives.row)
    if not n:
        return
    kinds = decoded.kinds
    place = np.arange(n)
    is_assignment = lives.key_type == KeyType.CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT

    def last_before(chosen: Mask) -> Ints:
        """Place of the last chosen row before each row, of the same member; -1 for none."""
        last = np.r_[-1, np.maximum.accumulate(np.where(chosen, place, -1))[:-1]]
        return np.where(last >= lives.begin, last, -1)

    # A member can go when nothing came after the tombstone of its assignment, and its target has gone as well.
    is_value = ~lives.is_tombstone
    last_sign = last_before(is_assignment | ((lives.key_type == KeyType.CONSUMER_GROUP_MEMBER_METADATA) & is_value))
    last_target = last_before(lives.key_type == KeyType.CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER)
    leaves = (lives.key_type == KeyType.CONSUMER_GROUP_MEMBER_METADATA) & lives.is_tombstone
    surely = leaves & (last_sign >= 0) & ~is_value[last_sign] & (last_target >= 0) & ~is_value[last_target]
    is_sure = np.ones(int(lives.segment[-1]) + 1, np.bool_)
    is_sure[lives.segment[leaves & ~surely]] = False
    last_leave = np.maximum.accumulate(np.where(surely, place, -1))[lives.end - 1]
    has_gone = (place <= last_leave) & (last_leave >= lives.begin)

    is_sure[lives.segment[makes_group[kinds.group_code[lives.row]] == lives.row]] = False

    is_known = np.zeros(len(is_sure), np.bool_)
    segments, firsts = np.unique(lives.segment[has_gone], return_index=True)
    rows = lives.row[has_gone][firsts]
    for segment, group_code, member_code in zip(
        segments.tolist(), kinds.group_code[rows].tolist(), kinds.member_code[rows].tolist(), strict=True
    ):
        group = state[group_code]
        if group is not None:
            is_known[segment] = members[member_code] in group.members or members[member_code] in group.targets
    next_assignment = np.minimum.accumulate(np.where(is_assignment, place, n)[::-1])[::-1]
    following = np.r_[next_assignment[1:], n]
    is_replaced = is_assignment & is_value & (following < lives.end) & is_value[np.minimum(following, n - 1)]
    drop = is_sure[lives.segment] & np.where(has_gone, is_value | ~is_known[lives.segment], is_replaced)
    needless[lives.row[drop]] = True
