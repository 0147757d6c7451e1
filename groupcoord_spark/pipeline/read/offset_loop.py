"""The one loop over the offset records of a chunk that finds the changes which may be events: Python, or compiled by numba.

The file imports nothing of this package: numba compiles a loop again only when the file of the loop changes.
"""

PLAIN, TOMBSTONE, STAGED, COMMIT_MARKER, ABORT_MARKER, GROUP_RECORD = range(6)
"""Kinds of rows."""

(
    STATE, COMMITTED, RECORD, EPOCH, COMMIT_MS, EXPIRE_MS, TOPIC, BORN_MS,
    GROUP, ADVANCES, PERIOD, TOMBSTONE_AT, LOG_START, SEEN_AT, TOPIC_NAME,
) = range(15)  # fmt: skip
KEY_COLUMNS = 15
"""Of each offset: its state, its newest value (that of before the tombstone where it is gone), its group, the advances without membership
since the newest record of the group, the newest tombstone, the start of the log of its partition (0: not known), the marker that last ended
a commit of it, and the number of its topic."""

UNKNOWN, LIVE, GONE = range(3)
"""States."""

OF_KEY, OF_PRODUCER, NEXT, S_COMMITTED, S_RECORD, S_EPOCH, S_COMMIT_MS, S_EXPIRE_MS, S_TOPIC, S_MS = range(10)
STAGED_COLUMNS = 10
"""Of each commit in an open transaction. NEXT: the staged commit of the same producer before it; in a free row the next free row."""

USED, FREE, FILLED = range(3)
COUNTERS = 3
"""Rows of the staged table that were ever used, the first free one, and filled rows of the result."""

(
    OP, KEY, O_RECORD, O_AT, O_AT_MS, O_COMMITTED, O_EPOCH, O_TOPIC, O_COMMIT_MS, O_EXPIRE_MS, O_PRODUCER, O_ROW,
    B_STATE, B_COMMITTED, B_RECORD, B_EPOCH, B_COMMIT_MS, B_EXPIRE_MS, B_TOPIC, B_BORN_MS, O_ADVANCES,
) = range(21)  # fmt: skip
CHANGE_COLUMNS = 21
COMMITTED_OP, REMOVED_OP, ABORTED_OP, MARKER_OP, LAST_OP, STAGED_OP, REPLACED_OP = range(7)
"""Of each change: what it is, the offset, its record, when it counts, its value, the row of the chunk, and the value before.

MARKER_OP: a marker (O_COMMITTED 1: COMMIT) of a producer whose commits may lie before the first chunk. REPLACED_OP: a commit of such a
producer, which replaces a commit of the same offset in the same transaction. LAST_OP and STAGED_OP: what the
last chunk leaves of an offset and of an open transaction.
"""

MOST_ADVANCES = 3
HAS_MEMBERS = 1

NOTHING_BEFORE, ALL_BEFORE, IS_RECALL, LATER_MARKER_WINS, TOMBSTONE_DROPS_STAGED = 1, 2, 4, 8, 16
"""Flags. NOTHING_BEFORE: an offset that is not in the table has no earlier record. ALL_BEFORE: markers may end commits of before the first
chunk. IS_RECALL: the records are known, and only their state is wanted."""


def find_changes(
    kind, key, record_offset, timestamp_ms, value, committed, leader_epoch, commit_ms, expire_ms, topic, producer, producer_id, flags,
    keys, members, period, staged, heads, seen, counters, changes,
):  # fmt: skip
    """Fill ``changes`` with the changes among the rows that may be events, and bring the tables up to date.

    Args:
        kind, key, record_offset, timestamp_ms, producer: of each row; key is the offset's row in ``keys``, of a group record the group.
        value: of each row its place in the columns of values, ``committed`` to ``topic``.
        producer: the producer's row in ``heads`` and ``seen``; producer_id: its id.
        flags: the sum of the flags above.
        members: of each group, HAS_MEMBERS where that is known. period: of each group, the number of its records so far.
        heads: of each producer, its newest staged commit; -1: none. seen: of each producer, whether a marker of it was seen.
    """
    filled = counters[FILLED]
    for row in range(len(kind)):
        what, number = kind[row], key[row]
        if what == GROUP_RECORD:
            period[number] += 1
            members[number] = 0
            continue
        of_producer, entry, at, at_ms = producer[row], -1, record_offset[row], timestamp_ms[row]
        if what == STAGED:
            place = counters[FREE]
            if place >= 0:
                counters[FREE] = staged[place, NEXT]
            else:
                place = counters[USED]
                counters[USED] += 1
            of_value = value[row]
            staged[place, OF_KEY], staged[place, OF_PRODUCER], staged[place, NEXT] = number, producer_id[row], heads[of_producer]
            staged[place, S_COMMITTED], staged[place, S_RECORD], staged[place, S_MS] = committed[of_value], at, at_ms
            staged[place, S_EPOCH], staged[place, S_TOPIC] = leader_epoch[of_value], topic[of_value]
            staged[place, S_COMMIT_MS], staged[place, S_EXPIRE_MS] = commit_ms[of_value], expire_ms[of_value]
            heads[of_producer] = place
            if flags & ALL_BEFORE and not seen[of_producer]:
                for place in range(CHANGE_COLUMNS):
                    changes[filled, place] = -1
                changes[filled, OP], changes[filled, KEY], changes[filled, O_PRODUCER] = REPLACED_OP, number, producer_id[row]
                changes[filled, O_RECORD], changes[filled, O_AT], changes[filled, O_AT_MS] = at, at, at_ms
                filled += 1
            continue
        if what == TOMBSTONE:
            keys[number, TOMBSTONE_AT] = at
            if (keys[number, STATE] != GONE or flags & ALL_BEFORE) and not flags & IS_RECALL:
                changes[filled, OP], changes[filled, KEY] = REMOVED_OP, number
                changes[filled, O_RECORD], changes[filled, O_AT], changes[filled, O_AT_MS], changes[filled, O_ROW] = at, at, at_ms, row
                changes[filled, O_COMMITTED], changes[filled, O_EPOCH], changes[filled, O_TOPIC] = 0, -1, 0
                changes[filled, O_COMMIT_MS], changes[filled, O_EXPIRE_MS], changes[filled, O_PRODUCER] = -1, -1, -1
                changes[filled, B_STATE] = keys[number, STATE]
                for place in range(COMMITTED, BORN_MS + 1):
                    changes[filled, B_COMMITTED - COMMITTED + place] = keys[number, place]
                changes[filled, O_ADVANCES] = 0
                filled += 1
            keys[number, STATE] = GONE
            continue
        if what in (COMMIT_MARKER, ABORT_MARKER):
            entry = heads[of_producer]
            if flags & ALL_BEFORE and not seen[of_producer]:
                for place in range(CHANGE_COLUMNS):
                    changes[filled, place] = -1
                changes[filled, OP], changes[filled, O_PRODUCER] = MARKER_OP, producer_id[row]
                changes[filled, O_RECORD], changes[filled, O_AT], changes[filled, O_AT_MS] = at, at, at_ms
                changes[filled, O_COMMITTED] = what == COMMIT_MARKER
                filled += 1
            seen[of_producer] = 1
            if entry < 0:
                continue
            heads[of_producer] = -1
        while True:
            if entry >= 0:  # the newest commit of the transaction comes first: it is the one of its offset that counts
                number, of_record, by = staged[entry, OF_KEY], staged[entry, S_RECORD], staged[entry, OF_PRODUCER]
                new, epoch, of_topic = staged[entry, S_COMMITTED], staged[entry, S_EPOCH], staged[entry, S_TOPIC]
                made_ms, expires_ms, written_ms = staged[entry, S_COMMIT_MS], staged[entry, S_EXPIRE_MS], staged[entry, S_MS]
                following = staged[entry, NEXT]
                staged[entry, NEXT] = counters[FREE]
                counters[FREE] = entry
                entry = following
                counts = keys[number, SEEN_AT] != at and (not flags & TOMBSTONE_DROPS_STAGED or of_record > keys[number, TOMBSTONE_AT])
                keys[number, SEEN_AT] = at
                is_older = keys[number, STATE] == LIVE and of_record < keys[number, RECORD] and not flags & LATER_MARKER_WINS
                if what == COMMIT_MARKER and is_older:
                    counts = False
            else:
                of_value = value[row]
                of_record, by, written_ms, counts = at, -1, at_ms, True
                new, epoch, of_topic = committed[of_value], leader_epoch[of_value], topic[of_value]
                made_ms, expires_ms = commit_ms[of_value], expire_ms[of_value]
            if counts:
                state, old, group = keys[number, STATE], keys[number, COMMITTED], keys[number, GROUP]
                is_event = what == ABORT_MARKER
                if not is_event and state == UNKNOWN:
                    is_event = not flags & NOTHING_BEFORE or epoch == -1
                elif not is_event and state == GONE:
                    is_event = True
                elif not is_event:
                    was_topic = keys[number, TOPIC]
                    is_event = new < old or (of_topic != was_topic and of_topic != 0 and was_topic != 0)
                    if not is_event and new > old and epoch == -1:
                        start = keys[number, LOG_START]
                        is_event = old < start <= new
                        if members[group] != HAS_MEMBERS and by < 0:
                            if keys[number, PERIOD] != period[group]:
                                keys[number, PERIOD], keys[number, ADVANCES] = period[group], 0
                            is_event = is_event or keys[number, ADVANCES] < MOST_ADVANCES
                if is_event and not flags & IS_RECALL:
                    changes[filled, OP], changes[filled, KEY] = ABORTED_OP if what == ABORT_MARKER else COMMITTED_OP, number
                    changes[filled, O_RECORD], changes[filled, O_AT], changes[filled, O_AT_MS] = of_record, at, at_ms
                    changes[filled, O_COMMITTED], changes[filled, O_EPOCH], changes[filled, O_TOPIC] = new, epoch, of_topic
                    changes[filled, O_COMMIT_MS], changes[filled, O_EXPIRE_MS], changes[filled, O_PRODUCER] = made_ms, expires_ms, by
                    changes[filled, O_ROW] = -1 if by >= 0 else row
                    changes[filled, B_STATE] = state
                    for place in range(COMMITTED, BORN_MS + 1):
                        changes[filled, B_COMMITTED - COMMITTED + place] = keys[number, place]
                    changes[filled, O_ADVANCES] = keys[number, ADVANCES] if keys[number, PERIOD] == period[group] else 0
                    filled += 1
                if what != ABORT_MARKER:
                    if state == LIVE and new > old and by < 0 and epoch == -1 and keys[number, PERIOD] == period[group]:
                        keys[number, ADVANCES] = min(keys[number, ADVANCES] + 1, MOST_ADVANCES)
                    if state != LIVE:
                        keys[number, BORN_MS] = written_ms
                    keys[number, STATE], keys[number, COMMITTED], keys[number, RECORD], keys[number, EPOCH] = LIVE, new, of_record, epoch
                    keys[number, COMMIT_MS], keys[number, EXPIRE_MS] = made_ms, expires_ms
                    if of_topic != 0:  # values of transactions have no topic id
                        keys[number, TOPIC] = of_topic
            if entry < 0:
                break
    counters[FILLED] = filled
