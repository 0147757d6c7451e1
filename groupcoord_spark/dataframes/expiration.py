"""``expire``: what a cleanup removes from a state, as the frames of the nightly's rule tables."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from groupcoord_spark.answers import expiration
from groupcoord_spark.answers.what_if import StateTables, cleanups
from groupcoord_spark.coordinator.semantics import Semantics
from groupcoord_spark.dataframes.partitions import in_few_tasks, kept, task_count
from groupcoord_spark.dataframes.rows_of_tables import PACKED, frame_of, of_each_group
from groupcoord_spark.dataframes.state import State, named_semantics
from groupcoord_spark.errors import UsageError
from groupcoord_spark.moments import Moment, milliseconds_of, retention_of
from groupcoord_spark.pipeline.exchange.state_rows import packed_by_table
from groupcoord_spark.spark.session import require_package_on_workers

_PACKED_ARROW: Final = pa.schema([("cluster", pa.string()), ("kind", pa.string()), ("payload", pa.binary())])
_COMMITTED, _PENDING, _TYPE_0 = "committed", "pending", "type_0"


class Expirations(NamedTuple):
    """What a cleanup finds and does, as frames with the columns of the tables offset_expirations, group_expirations and tombstones.

    ``retention_changed`` is always false, because only a warehouse has the retention of an earlier run.
    """

    offsets: DataFrame
    groups: DataFrame
    tombstones: DataFrame


def expire(
    state: State,
    *,
    retention: timedelta | str | int = "7d",
    as_of: Moment = "now",
    semantics: Semantics | str = "java",
    assume_members_gone: bool = False,
) -> Expirations:
    """Apply the broker's cleanup at ``as_of`` to the state, and return what it removes and why. Nothing is computed before a frame is used.

    Args:
        state: from ``replay``, or made from tables of a warehouse: ``State`` with frames of one run. Some groups will do, with all of
            their offsets.
        retention: the broker's offsets.retention, for example ``7d``, ``36h``, a timedelta or milliseconds.
        as_of: the moment of the cleanup.
        semantics: as in ``replay``.
        assume_members_gone: treat groups with members as if their last member had left at ``as_of``.
    Raises:
        UsageError: ``state`` is not a State; ``retention``, ``as_of`` or ``semantics`` is invalid.
        GroupcoordError: the Python workers of the session lack the package.
    """
    if not isinstance(state, State):
        raise UsageError(f"expire takes what replay gives: expire(replay(records), ...). This is of the type {type(state).__name__}.")
    require_package_on_workers(state.groups.sparkSession)
    job = expiration.ExpirationJob(milliseconds_of(as_of), retention_of(retention), named_semantics(semantics), assume_members_gone)
    place = ("cluster", "offsets_partition")
    columns = [*place, *expiration.OFFSET_COLUMNS]
    offsets = state.committed_offsets.select(*columns, F.lit(_COMMITTED).alias("origin")).unionByName(
        state.pending_offsets.select(*columns, F.lit(_PENDING).alias("origin"))
    )
    groups = state.groups.select("cluster", *expiration.GROUP_COLUMNS)
    if state.type_0_offsets is not None:
        of_groups = groups.select(*place, "group_id")
        type_0 = state.type_0_offsets.join(of_groups, on=["cluster", "group_id"], how="inner").withColumn("origin", F.lit(_TYPE_0))
        offsets = offsets.unionByName(type_0, allowMissingColumns=True)
    if state.kept_groups is None:
        groups = groups.withColumn("kept_for", F.array().cast("array<string>"))
    else:
        kept_groups = state.kept_groups.groupBy("cluster", "group_id").agg(F.collect_set("kept_for").alias("kept_for"))
        groups = groups.join(kept_groups, on=["cluster", "group_id"], how="left")
    # One frame of both: before Spark 4.0 no function takes two frames as Arrow.
    offset, group = F.struct(*expiration.OFFSET_COLUMNS, "origin").alias("offset"), F.struct(*groups.columns).alias("group")
    both = offsets.select(*place, offset).unionByName(groups.select(*place, group), allowMissingColumns=True)
    packed = in_few_tasks(kept(of_each_group(both, place, _rules(job), PACKED, task_count(groups.sparkSession))))
    return Expirations(*(frame_of(packed, table) for table in expiration.RULE_COLUMNS))


def _rules(job: expiration.ExpirationJob) -> Callable[[tuple[Any, ...], pa.Table], pa.Table]:
    """Return the function of one offsets partition: its offsets and groups -> rows of PACKED."""

    def apply(key: tuple[Any, ...], offsets_and_groups: pa.Table) -> pa.Table:
        cluster, offsets_partition = key
        offsets, groups = (_rows_of(offsets_and_groups[name]) for name in ("offset", "group"))
        of_origin = {origin: offsets.filter(pc.equal(offsets["origin"], origin)) for origin in (_COMMITTED, _PENDING, _TYPE_0)}
        type_0 = frozenset(zip(*(of_origin[_TYPE_0][name].to_pylist() for name in expiration.PENDING_COLUMNS), strict=True))
        reasons = zip(groups["group_id"].to_pylist(), groups["kept_for"].to_pylist(), strict=True)
        kept_groups = frozenset((group_id, reason) for group_id, of_group in reasons for reason in of_group or ())
        state = StateTables(of_origin[_COMMITTED], of_origin[_PENDING], groups, type_0, kept_groups)
        expirations = expiration.expiration_rows((cleaned for _, cleaned in cleanups(state, job)), job, type_0)
        packed = dict(packed_by_table(offsets_partition, expirations))
        return pa.table({"cluster": [cluster] * len(packed), "kind": [*packed], "payload": [*packed.values()]}, _PACKED_ARROW)

    return apply


def _rows_of(structs: pa.ChunkedArray) -> pa.Table:
    """Return the structs that are not NULL as a table."""
    names = [field.name for field in structs.type]
    there = structs.filter(structs.is_valid())
    return pa.table([pc.struct_field(there, name) for name in names], names)
