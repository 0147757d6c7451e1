"""Which member had which partition, and when, from the records of a group."""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from itertools import chain, groupby
from operator import itemgetter
from string import Template
from typing import Any, Final, NamedTuple

import pyarrow as pa

from groupcoord_spark.answers.partition_owners import KEY_TYPES, Holding, PartitionOwners
from groupcoord_spark.report.tables import MOST_ROWS
from groupcoord_spark.warehouse.sql import SnapshotInDuckDB, text_literal
from groupcoord_spark.warehouse.view_texts import VIEWS

TIMELINES: Final = 50
"""Groups with a timeline, where the user names none."""

_RECORDS: Final = f"""
SELECT r.group_id, r.offsets_partition, r.incarnation, r.record_offset, epoch_ms(r.record_timestamp) AS at_ms, r.key_type, r.member_id,
  r.value_json
FROM group_records r
WHERE r.group_id IN ($chosen_groups) AND r.key_type IN ({", ".join(str(int(key_type)) for key_type in KEY_TYPES)})
ORDER BY list_position([$chosen_groups], r.group_id), r.incarnation, r.offsets_partition, r.record_offset
"""

_SCHEMA: Final = pa.schema(
    {
        "group_id": pa.string(),
        "topic": pa.string(),
        "partition": pa.int32(),
        "member_id": pa.string(),
        "owned_from": pa.timestamp("us", "UTC"),
        "owned_until": pa.timestamp("us", "UTC"),
        "is_current": pa.bool_(),
        "offsets_partition": pa.int32(),
        "record_offset": pa.int64(),
    }
)


def of_groups(query: str, group_ids: Sequence[str]) -> str:
    """Replace ``$chosen_groups`` in a query by the ids of the groups, which the scan gets as constants, and ``$view`` by a view's text."""
    chosen = {"chosen_groups": ", ".join(map(text_literal, group_ids)) or "NULL"}
    return Template(query).substitute({**VIEWS, **chosen})


class Ownership(NamedTuple):
    """A time span of a member's ownership of a partition. Times are epoch milliseconds, or None if records of old brokers have none."""

    group_id: str
    topic: str
    partition: int
    member_id: str
    from_ms: int | None
    until_ms: int | None
    is_current: bool
    offsets_partition: int
    record_offset: int
    """Of the record that gave the partition to the member."""


def ownership(run: SnapshotInDuckDB, group_ids: Sequence[str]) -> tuple[Sequence[str], pa.Table]:
    """Return the first of these groups, until they have ``MOST_ROWS`` ownership spans, and the spans as rows, group by group."""
    names = run.rows("SELECT topic_id, topic FROM topic_ids")
    topic_names = dict(zip(names["topic_id"].to_pylist(), names["topic"].to_pylist(), strict=True))
    members = run.rows("SELECT DISTINCT group_id, member_id FROM members")
    present = set(zip(*(column.to_pylist() for column in members.columns), strict=True))
    # Every record as objects of Python would take most of the report's memory.
    batches = run.rows(of_groups(_RECORDS, group_ids)).to_batches(max_chunksize=1000)
    records = chain.from_iterable(batch.to_pylist() for batch in batches)
    rows: list[Ownership] = []
    for group_id, of_group in groupby(records, key=itemgetter("group_id")):
        spans = ended(list(stretches(of_group, topic_names)), present)
        rows += sorted(spans, key=lambda s: (s.topic, s.partition, s.from_ms or 0, s.member_id))
        if len(rows) >= MOST_ROWS:
            group_ids = group_ids[: group_ids.index(group_id) + 1]
            break
    columns = list(zip(*rows, strict=True)) or [()] * len(_SCHEMA)
    for at in (4, 5):
        columns[at] = tuple(None if ms is None else ms * 1000 for ms in columns[at])
    arrays = [pa.array(values, field.type) for values, field in zip(columns, _SCHEMA, strict=True)]
    return group_ids, pa.table(arrays, schema=_SCHEMA)


def ended(owners: Sequence[Ownership], members: Set[tuple[str, str]]) -> Iterator[Ownership]:
    """Yield the spans. A span whose member is not in the run is not current, because no run read the record that ended it.

    Such a stretch ends when the next member gets the partition. members: (group id, member id).
    """
    begins = defaultdict(list)
    for stretch in owners:
        begins[stretch[:3]].append(stretch.from_ms or 0)
    for stretch in owners:
        if stretch.is_current and (stretch.group_id, stretch.member_id) not in members:
            until_ms = min((begin for begin in begins[stretch[:3]] if begin > (stretch.from_ms or 0)), default=None)
            yield stretch._replace(is_current=False, until_ms=until_ms)
        else:
            yield stretch


def stretches(records: Iterable[Mapping[str, Any]], topic_names: Mapping[str, str]) -> Iterable[Ownership]:
    """Yield the ownership spans in records of ``partition_owners.KEY_TYPES``, group by group in record order.

    Args:
        records: group_id, offsets_partition, incarnation, record_offset, at_ms, key_type, member_id and value_json.
        topic_names: Topic id -> name; a topic id without a name stands for itself.
    """
    place: tuple[Any, ...] | None = None
    owners = PartitionOwners()
    begins: dict[Holding, Mapping[str, Any]] = {}

    def stretch(holding: Holding, begin: Mapping[str, Any], until_ms: int | None, *, is_current: bool = False) -> Ownership:
        topic = holding.topic or topic_names.get(holding.topic_id or "") or holding.topic_id or ""
        where = begin["offsets_partition"], begin["record_offset"]
        return Ownership(begin["group_id"], topic, holding.partition, holding.member_id, begin["at_ms"], until_ms, is_current, *where)

    for record in records:
        last_place = place
        if last_place != (place := (record["group_id"], record["incarnation"], record["offsets_partition"])):
            # a later incarnation: every stretch of the earlier one ended by then
            is_current = last_place is not None and last_place[0] != place[0]
            ended_ms = None if is_current else record["at_ms"]
            yield from (stretch(holding, begin, ended_ms, is_current=is_current) for holding, begin in begins.items())
            owners, begins = PartitionOwners(), {}
        value = None if record["value_json"] is None else json.loads(record["value_json"])
        owners.apply(record["key_type"], record["member_id"], value)
        holdings = owners.holdings()
        for holding in [holding for holding in begins if holding not in holdings]:
            yield stretch(holding, begins.pop(holding), record["at_ms"])
        for holding in holdings:
            begins.setdefault(holding, record)
    yield from (stretch(holding, begin, None, is_current=True) for holding, begin in begins.items())
