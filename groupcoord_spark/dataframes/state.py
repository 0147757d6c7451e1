"""``replay``: the state of the group coordinator after a frame of records, as the frames of the nightly's state tables.

``rebalances``: how the groups rebalanced on the way, as the frame of the nightly's table of that name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from numbers import Integral
from typing import TYPE_CHECKING, Final, Self, cast

import pyarrow as pa
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

from groupcoord_spark.answers.authors import other_coordinator
from groupcoord_spark.coordinator.semantics import JAVA, Semantics, semantics_for
from groupcoord_spark.dataframes.partitions import kept, replayed_frame
from groupcoord_spark.dataframes.rows_of_tables import frame_of, plain_frame_of, schema_of
from groupcoord_spark.errors import UsageError
from groupcoord_spark.moments import Moment, milliseconds_of
from groupcoord_spark.pipeline.exchange.state_rows import KEPT_GROUPS, PARTITION_REPORT, TOPIC_NAMES, TYPE_0_OFFSETS, PartitionReport
from groupcoord_spark.pipeline.extents import Until
from groupcoord_spark.pipeline.plan.input_rows import TRANSACTIONS_UNKNOWN
from groupcoord_spark.pipeline.rebalances import REBALANCES
from groupcoord_spark.sources.frames import tells_transactions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_PLAIN_TABLES: Final = ("committed_offsets", "pending_offsets", "orphan_offsets", "groups", "members", "quarantined_records")
_TEXTS: Final = {
    name: StructType([StructField(column, StringType()) for column in columns.split()])
    for name, columns in ((TOPIC_NAMES, "topic_id name"), (KEPT_GROUPS, "group_id kept_for"))
}
_TYPE_0: Final = StructType(
    [StructField("group_id", StringType()), StructField("topic", StringType()), StructField("partition", IntegerType())]
)
_KINDS: Final = StructType(
    [StructField("key_type", IntegerType()), StructField("value_version", IntegerType()), StructField("decoded", LongType())]
)


@dataclass(frozen=True)
class State:
    """The state of the coordinator, as frames with the columns of the tables of these names.

    warnings and quarantined_records have no run_id, because no run wrote them. type_0_offsets (cluster, group_id, topic, partition):
    offsets whose newest record has a key of type 0, so that they come back after their tombstone. kept_groups (cluster, group_id,
    kept_for): groups that a cleanup may keep for a reason that no other frame shows. Both are None for a state of other origin, for example
    from the tables of a warehouse; ``expire`` then goes by the state alone.
    """

    committed_offsets: DataFrame
    pending_offsets: DataFrame
    orphan_offsets: DataFrame
    groups: DataFrame
    members: DataFrame
    assignments: DataFrame
    warnings: DataFrame
    quarantined_records: DataFrame
    type_0_offsets: DataFrame | None = None
    kept_groups: DataFrame | None = None
    replayed: DataFrame | None = None
    """The frame that all others are made of. It is kept on the executors after its first use; ``unpersist`` frees them."""

    def unpersist(self) -> None:
        """Free the memory and the disks of the executors. The frames can still be used; each of them then replays again."""
        if self.replayed is not None:
            self.replayed.unpersist()


def replay(records: DataFrame, *, semantics: Semantics | str = JAVA, until: Moment | Mapping[int, int] | None = None) -> State:
    """The state of the coordinator after these records. Nothing is computed before one of the frames is used.

    Args:
        records: raw records, or what ``decode`` gave of them: all, or those of some groups with all control records (``of_groups``).
        semantics: ``java``, ``scala``, a release of Kafka such as ``3.6``, or what ``semantics_for`` returns.
        until: only the records before the first one that is later than this moment are replayed; or by offsets partition the offset of
            the first record that is not replayed.
    Raises:
        UsageError: the frame is a stream, lacks a column, or has a column of another type; ``semantics`` or ``until`` is not known.
    """
    rules = named_semantics(semantics)
    replayed = kept(replayed_frame(records, rules, until=_end_of(until)))
    return _ReplayedState.of(replayed, rules, tells_transactions=tells_transactions(records))


class _ReplayedState(State):
    """The state whose frames are made of the replayed one, each when it is first asked for: to plan all of them takes 2 s of CPU."""

    _semantics: Semantics
    _tells_transactions: bool

    @classmethod
    def of(cls, replayed: DataFrame, semantics: Semantics, *, tells_transactions: bool) -> Self:
        state = cls.__new__(cls)
        vars(state).update(replayed=replayed, _semantics=semantics, _tells_transactions=tells_transactions)
        return state

    def __getattr__(self, name: str) -> DataFrame:
        """The frame of a table that is as the replay gives it, at its first use."""
        if name not in _PLAIN_TABLES:
            raise AttributeError(f"a state has no frame {name!r}")
        return cast("DataFrame", vars(self).setdefault(name, frame_of(self._replayed, name)))

    @property
    def _replayed(self) -> DataFrame:
        assert self.replayed is not None, "a replayed state is made of its frame"
        return self.replayed

    @cached_property
    def assignments(self) -> DataFrame:
        """With the names of topics of which a member's record has only the id, where a commit of any offsets partition names the topic."""
        from pyspark.sql import functions as F  # noqa: N812

        assignments = frame_of(self._replayed, "assignments")
        names = plain_frame_of(self._replayed, TOPIC_NAMES, _TEXTS[TOPIC_NAMES], dict.items)
        names = names.groupBy("cluster", "topic_id").agg(F.max("name").alias("name"))
        return assignments.join(names, on=["cluster", "topic_id"], how="left").select(
            *(
                F.coalesce(assignments["topic"], names["name"]).alias("topic", metadata=field.metadata)
                if field.name == "topic"
                else assignments[field.name]
                for field in assignments.schema
            )
        )

    @cached_property
    def warnings(self) -> DataFrame:
        of_clusters = _of_clusters(self._replayed, self._semantics, tells_transactions=self._tells_transactions)
        return frame_of(self._replayed, "warnings").unionByName(of_clusters, allowMissingColumns=True)

    @cached_property
    def type_0_offsets(self) -> DataFrame:
        return plain_frame_of(self._replayed, TYPE_0_OFFSETS, _TYPE_0, list)

    @cached_property
    def kept_groups(self) -> DataFrame:
        return plain_frame_of(self._replayed, KEPT_GROUPS, _TEXTS[KEPT_GROUPS], list)


def rebalances(records: DataFrame, *, semantics: Semantics | str = JAVA) -> DataFrame:
    """One row for each new generation of a classic group, and for each new group epoch and target assignment of the others.

    In:  raw records, or what ``decode`` gave of them: all, or those of some groups.
    Out: the columns of the table ``rebalances``; incarnation is 0.
    Raises UsageError for a frame without the columns that are needed, and for unknown ``semantics``.
    """
    return frame_of(replayed_frame(records, named_semantics(semantics), with_rebalances=True), REBALANCES)


def _of_clusters(replayed: DataFrame, semantics: Semantics, *, tells_transactions: bool) -> DataFrame:
    """The columns of a warning that are not NULL, for each cluster whose records give one.

    Another coordinator than that of the semantics wrote the records, or nothing tells which records are of transactions.
    """
    columns = pa.schema([(name, pa.string()) for name in ("cluster", "code", "detail")])
    declared = schema_of("warnings")
    schema = StructType([declared[name] for name in columns.names])

    def of_cluster(key: tuple[pa.Scalar, ...], kinds: pa.Table) -> pa.Table:
        records: Counter[tuple[int, int]] = Counter()
        for key_type, value_version, decoded in zip(*(kinds[name].to_pylist() for name in _KINDS.names), strict=True):
            records[key_type, value_version] += decoded
        details = {
            "other_coordinator": other_coordinator(semantics, records),
            "transactions_unknown": None if tells_transactions else TRANSACTIONS_UNKNOWN,
        }
        rows = [{"cluster": key[0].as_py(), "code": code, "detail": detail} for code, detail in details.items() if detail]
        return pa.Table.from_pylist(rows, columns)

    of_cluster.__annotations__ = {"key": tuple[pa.Scalar, ...], "kinds": pa.Table, "return": pa.Table}
    return plain_frame_of(replayed, PARTITION_REPORT, _KINDS, _kinds_of).groupBy("cluster").applyInArrow(of_cluster, schema)


def _kinds_of(report: PartitionReport) -> Iterable[tuple[int, int, int]]:
    """Key type, value version, and the number of records that decode."""
    return ((*kind, count.decoded) for kind, count in report.counts.by_kind.items())


def named_semantics(semantics: Semantics | str) -> Semantics:
    """The semantics of that name. Raises UsageError for a name and a release that do not exist."""
    if isinstance(semantics, Semantics):
        return semantics
    return semantics_for(semantics) if semantics in ("java", "scala") else semantics_for(broker_version=str(semantics))


def _end_of(until: Moment | Mapping[int, int] | None) -> Until | None:
    """Where the replay ends. Raises UsageError for what is no moment and no end offsets."""
    if until is None:
        return None
    if not isinstance(until, Mapping):
        return Until(str(until), time_ms=milliseconds_of(until))
    numbers: list[object] = [*until, *until.values()]
    if wrong := [number for number in numbers if not isinstance(number, Integral)]:
        raise UsageError(f"until={{partition: offset}} takes two whole numbers, for example {{0: 1000}}; {wrong[0]!r} is none.")
    return Until("end offsets", end_offsets=dict(until))
