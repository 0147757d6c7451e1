"""``replay``: the state of the group coordinator after a frame of records, as the frames of the nightly's state tables.

``rebalances``: how the groups rebalanced on the way, as the frame of the nightly's table of that name.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from numbers import Integral
from typing import Any, Final, Self, cast

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from groupcoord_spark.answers.authors import other_coordinator
from groupcoord_spark.coordinator.semantics import Semantics, semantics_for
from groupcoord_spark.dataframes.partitions import in_few_tasks, kept, replayed_frame
from groupcoord_spark.dataframes.rows_of_tables import frame_of, of_each_group, plain_frame_of, schema_of
from groupcoord_spark.errors import UsageError
from groupcoord_spark.moments import Moment, milliseconds_of
from groupcoord_spark.pipeline.exchange import state_rows
from groupcoord_spark.pipeline.extents import Until
from groupcoord_spark.pipeline.plan.input_rows import TRANSACTIONS_UNKNOWN
from groupcoord_spark.pipeline.rebalances import REBALANCES
from groupcoord_spark.pipeline.replay.reachable_groups import warnings_about_unreachable
from groupcoord_spark.sources.frames import readable
from groupcoord_spark.sources.rows import TRANSACTIONS
from groupcoord_spark.spark.column_functions import struct_of

_PLAIN_TABLES: Final = ("committed_offsets", "pending_offsets", "orphan_offsets", "groups", "members", "quarantined_records")
_NAMES: Final = struct_of(topic_id="string", name="string")
_KEPT: Final = struct_of(group_id="string", kept_for="string")
_TYPE_0: Final = struct_of(group_id="string", topic="string", partition="integer")
_PLACED: Final = struct_of(group_id="string", offsets_partition="integer", commit_ms="long", record_ms="long")
_KINDS: Final = struct_of(key_type="integer", value_version="integer", decoded="long", tells_transactions="boolean")


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


def replay(
    records: DataFrame,
    *,
    semantics: Semantics | str = "java",
    until: Moment | Mapping[int, int] | None = None,
    cluster: str | None = None,
) -> State:
    """Return the state of the coordinator after these records. Nothing is replayed before one of the frames is used.

    Args:
        records: raw records or decoded ones (``decode``): all, or only some groups' records with all control records (``of_groups``).
        semantics: ``java``, ``scala``, a release of Kafka such as ``3.6``, or what ``semantics_for`` returns.
        until: replay stops before the first record later than this moment, or, by offsets partition, at this end offset.
        cluster: value of the column ``cluster``, for joins with a warehouse; None: as the records have it, else ``default``.
    Raises:
        UsageError: the frame is a stream, lacks a column, or has a column of another type; ``semantics`` or ``until`` is not known.
        InputError: the column ``topic`` has rows of other topics alone.
        GroupcoordError: the Python workers of the session lack the package.
    """
    rules = named_semantics(semantics)
    return _ReplayedState.of(kept(replayed_frame(_of_cluster(records, cluster), rules, until=_end_of(until))), rules)


class _ReplayedState(State):
    """The state whose frames are made of the replayed one, each when it is first asked for: to plan all of them takes 2 s of CPU."""

    _semantics: Semantics

    @classmethod
    def of(cls, replayed: DataFrame, semantics: Semantics) -> Self:
        state = cls.__new__(cls)
        vars(state).update(replayed=replayed, _semantics=semantics)
        return state

    def __getattr__(self, name: str) -> DataFrame:
        """Return the frame of a table that the replay produces, created on first use."""
        if name not in _PLAIN_TABLES:
            raise AttributeError(f"a state has no frame {name!r}")
        return cast("DataFrame", vars(self).setdefault(name, self._of_clients(name)))

    @property
    def _replayed(self) -> DataFrame:
        assert self.replayed is not None, "a replayed state is made of its frame"
        return in_few_tasks(self.replayed)

    def unpersist(self) -> None:
        super().unpersist()
        if (unreachable := vars(self).get("_unreachable")) is not None:
            unreachable.unpersist()

    @cached_property
    def assignments(self) -> DataFrame:
        """Includes the names of topics whose ids a member's record contains, if a commit in any offsets partition names the topic."""
        assignments = self._of_clients("assignments")
        names = plain_frame_of(self._replayed, state_rows.TOPIC_NAMES, _NAMES, dict.items)
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
        of_clusters = _of_clusters(self._replayed, self._semantics)
        of_replay = frame_of(self._replayed, "warnings").unionByName(of_clusters, allowMissingColumns=True)
        return of_replay.unionByName(self._unreachable, allowMissingColumns=True)

    @cached_property
    def _unreachable(self) -> DataFrame:
        """The columns of a warning that are not NULL, for each group that no client reaches."""
        declared = schema_of("warnings")
        schema = StructType([declared[name] for name in ("cluster", "offsets_partition", "group_id", "code", "detail")])
        columns = to_arrow_schema(schema)

        def of_cluster(key: tuple[Any, ...], placed: pa.Table) -> pa.Table:
            rows = [tuple(row[name] for name in _PLACED.names) for row in placed.to_pylist()]
            warnings = warnings_about_unreachable(rows)
            of_key = pa.repeat(pa.scalar(key[0], pa.string()), warnings.num_rows)
            return warnings.append_column("cluster", of_key).select(columns.names).cast(columns)

        placed = plain_frame_of(self._replayed, state_rows.PLACED_GROUPS, _PLACED, list)
        return kept(of_each_group(placed, ["cluster"], of_cluster, schema, tasks=1))

    def _of_clients(self, table: str) -> DataFrame:
        """Return the rows of a table without groups that no client reaches."""
        rows = frame_of(self._replayed, table)
        if table not in state_rows.TABLES_OF_GROUPS:
            return rows
        unreachable = F.broadcast(self._unreachable)
        is_same = [rows[name] == unreachable[name] for name in ("cluster", "offsets_partition", "group_id")]
        return rows.join(unreachable, on=is_same, how="left_anti")

    @cached_property
    def type_0_offsets(self) -> DataFrame:
        return plain_frame_of(self._replayed, state_rows.TYPE_0_OFFSETS, _TYPE_0, list)

    @cached_property
    def kept_groups(self) -> DataFrame:
        return plain_frame_of(self._replayed, state_rows.KEPT_GROUPS, _KEPT, list)


def rebalances(records: DataFrame, *, semantics: Semantics | str = "java", cluster: str | None = None) -> DataFrame:
    """Return one row for each new generation of a classic group, and for each new epoch and target assignment of other groups.

    Args:
        records: raw records or decoded ones (``decode``): all, or only some groups' records.
        semantics, cluster: as in ``replay``.

    Returns:
        The columns of the table ``rebalances``; incarnation is 0.

    Raises:
        UsageError: the frame lacks a column, or ``semantics`` is not known.
    """
    return frame_of(replayed_frame(_of_cluster(records, cluster), named_semantics(semantics), with_rebalances=True), REBALANCES)


def _of_cluster(records: DataFrame, cluster: str | None) -> DataFrame:
    return records if cluster is None else readable(records).withColumn("cluster", F.lit(cluster))


def _of_clusters(replayed: DataFrame, semantics: Semantics) -> DataFrame:
    """Return the non-NULL columns of a warning for each cluster whose records raise one.

    Warn if a coordinator other than the one of the semantics wrote the records, or if transactional records cannot be identified.
    """
    columns = pa.schema([(name, pa.string()) for name in ("cluster", "code", "detail")])
    declared = schema_of("warnings")
    schema = StructType([declared[name] for name in columns.names])

    def of_cluster(key: tuple[Any, ...], kinds: pa.Table) -> pa.Table:
        records: Counter[tuple[int, int]] = Counter()
        key_types, value_versions, decoded, tells_transactions = (kinds[name].to_pylist() for name in _KINDS.names)
        for key_type, value_version, count in zip(key_types, value_versions, decoded, strict=True):
            records[key_type, value_version] += count
        details = {
            "other_coordinator": other_coordinator(semantics, records),
            "transactions_unknown": None if all(tells_transactions) else TRANSACTIONS_UNKNOWN,
        }
        rows = [{"cluster": key[0], "code": code, "detail": detail} for code, detail in details.items() if detail]
        return pa.Table.from_pylist(rows, columns)

    return of_each_group(plain_frame_of(replayed, state_rows.PARTITION_REPORT, _KINDS, _kinds_of), ["cluster"], of_cluster, schema, tasks=1)


def _kinds_of(report: state_rows.PartitionReport) -> Iterable[tuple[int, int, int, bool]]:
    """Key type, value version, the number of records that decode, and whether the rows identify transactional records."""
    return ((*kind, count.decoded, TRANSACTIONS not in report.lacks) for kind, count in report.counts.by_kind.items())


def named_semantics(semantics: Semantics | str) -> Semantics:
    """Return the semantics of that name. Raises UsageError for an unknown name or release."""
    if isinstance(semantics, Semantics):
        return semantics
    return semantics_for(semantics) if semantics in ("java", "scala") else semantics_for(broker_version=str(semantics))


def _end_of(until: Moment | Mapping[int, int] | None) -> Until | None:
    """Return where the replay ends. Raises UsageError for a value that is neither a time nor end offsets."""
    if until is None:
        return None
    if not isinstance(until, Mapping):
        return Until(str(until), time_ms=milliseconds_of(until))
    numbers: list[object] = [*until, *until.values()]
    if wrong := [number for number in numbers if not isinstance(number, Integral)]:
        raise UsageError(f"until={{partition: offset}} takes two whole numbers, for example {{0: 1000}}, not {wrong[0]!r}.")
    return Until("end offsets", end_offsets=dict(until))
