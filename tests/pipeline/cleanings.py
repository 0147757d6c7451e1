"""Every cleaning of a short log, tried without a thought, and what a load makes of it: what the doctor must foresee."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from groupcoord_spark.coordinator import PartitionReplay, PartitionState, Semantics
from groupcoord_spark.log import plan_logs
from groupcoord_spark.pipeline.replay.after_cleaning import AfterCleaning, check_after_cleaning
from groupcoord_spark.protocol import DecodeError, decode_key
from tests.coordinator.records import Record, everything
from tests.log.log_writer import Rec, batch, marker, write_segment

TRANSACTIONAL = 0x10


def foreseen(directory: Path, log: Sequence[Record], semantics: Semantics, *, batches: Sequence[int] | None = None) -> AfterCleaning:
    """Return what the doctor says of the log. batches: the number of each record's batch; None: every record is a batch."""
    numbers = list(range(len(log))) if batches is None else batches
    entries = []
    for number in sorted(set(numbers)):
        places = [place for place, of_record in enumerate(numbers) if of_record == number]
        record = log[places[0]]
        if record.control_type is not None:
            entries.append(marker(places[0], record.control_type, producer_id=record.producer_id))
            continue
        recs = [Rec(key=log[place].key, value=log[place].value, offset_delta=place - places[0]) for place in places]
        attributes = TRANSACTIONAL if record.is_transactional else 0
        entries.append(batch(places[0], recs, attributes=attributes, producer_id=record.producer_id, producer_epoch=record.producer_epoch))
    write_segment(directory, entries)
    ((outcome,),) = [check_after_cleaning(partition, [semantics]) for partition in plan_logs([str(directory)]).partitions]
    return outcome


def answers_of_every_cleaning(
    log: Sequence[Record], semantics: Semantics, *, batches: Sequence[int] | None = None
) -> dict[str, set[str]]:
    """By group, ``refused``, ``refused_while_cleaning`` and ``other_state`` as some cleaning makes them. batches: as of ``foreseen``."""
    numbers = list(range(len(log))) if batches is None else batches
    answers: dict[str, set[str]] = defaultdict(set)
    now = _loaded(log, range(len(log)), semantics)
    refused_now = _refusals(now)
    for places, is_while in _cleaned(log, numbers):
        after = _loaded(log, places, semantics)
        for group, offsets in _refusals(after).items():
            if offsets - refused_now.get(group, set()):
                answers[group].add("refused_while_cleaning" if is_while else "refused")
        if not is_while:
            for group in groups_of(log):
                unlike = _visible(after, group) != _visible(now, group)
                if unlike and not (answers[group] & {"refused"}) and group not in refused_now:
                    answers[group].add("other_state")
    return {group: of_group for group, of_group in answers.items() if of_group}


def groups_of(log: Sequence[Record]) -> set[str]:
    """Return the groups that the keys name."""
    return {group for group in map(_group_of, log) if group is not None}


def _group_of(record: Record) -> str | None:
    try:
        return None if record.control_type is not None else decode_key(record.key).fields.get("group_id")
    except DecodeError:
        return None


def _cleaned(log: Sequence[Record], batches: Sequence[int]) -> Iterator[tuple[list[int], bool]]:
    """Yield the places of the records that a load reads after a cleaning, and whether it has begun before the cleaning."""
    ends: dict[int, int] = {}
    fate: list[int | str | None] = [None] * len(log)
    for place in reversed(range(len(log))):
        record = log[place]
        if record.control_type in (0, 1):
            ends[record.producer_id] = record.control_type
        elif record.control_type is None and record.is_transactional:
            fate[place] = ends.get(record.producer_id, "open")
    limit = fate.index("open") if "open" in fate else len(log)
    borders = [place for place in range(1, len(log)) if batches[place] != batches[place - 1]] + [len(log)]
    for end in (border for border in borders if border <= limit):
        is_counted = [record.control_type is None and record.key is not None and fate[place] != 0 for place, record in enumerate(log)]
        last = {log[place].key: place for place in range(end) if is_counted[place]}
        is_last = [is_counted[place] and last[log[place].key] == place for place in range(end)]
        kept = [place for place in range(end) if log[place].control_type is not None or is_last[place]]
        rest = list(range(end, len(log)))
        yield kept + rest, False
        yield [place for place in kept if log[place].control_type is not None or log[place].value is not None] + rest, False
        for begun in (border for border in borders if border < end):
            yield list(range(begun)) + [place for place in kept if place >= begun] + rest, True


def _loaded(log: Sequence[Record], places: Sequence[int], semantics: Semantics) -> PartitionState:
    replay = PartitionReplay(semantics)
    for place in places:
        log[place].apply_to(replay, place)
    return replay.finish()


def _refusals(state: PartitionState) -> dict[str, set[int | None]]:
    refusals: dict[str, set[int | None]] = defaultdict(set)
    for warning in state.warnings():
        if warning.is_refusal and warning.group_id is not None:
            refusals[warning.group_id].add(warning.record_offset)
    return refusals


def _visible(state: PartitionState, group: str) -> list[Any]:
    """Return what a client sees of the group."""
    rows = everything(state)
    without = {"record_offset": None, "record_timestamp_ms": None, "topic_count": 0, "offset_count": 0, "pending_offset_count": 0}
    groups = [row._replace(**without) for row in rows["groups"] if not row.is_simple]
    members = [row._replace(record_offset=None) for row in rows["members"]]
    seen = (groups, members, state.assignments({}), rows["committed"], rows["pending"])
    return [[row for row in of_kind if row.group_id == group] for of_kind in seen]
