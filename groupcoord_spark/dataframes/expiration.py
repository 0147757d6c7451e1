"""``expire``: what a cleanup removes from a state, as the frames of the nightly's rule tables."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from groupcoord_spark.coordinator.semantics import JAVA, Semantics
from groupcoord_spark.dataframes.partitions import kept, task_count
from groupcoord_spark.dataframes.rows_of_tables import PACKED, frame_of
from groupcoord_spark.dataframes.state import State, named_semantics
from groupcoord_spark.errors import UsageError
from groupcoord_spark.moments import Moment, milliseconds_of, retention_of
from groupcoord_spark.pipeline.exchange.state_rows import packed_by_table
from groupcoord_spark.pipeline.expiration import (
    GROUP_COLUMNS,
    OFFSET_COLUMNS,
    PENDING_COLUMNS,
    RULE_COLUMNS,
    ExpirationJob,
    expiration_rows,
)
from groupcoord_spark.pipeline.what_if import StateTables, cleanups

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_PACKED_ARROW: Final = pa.schema([("cluster", pa.string()), ("kind", pa.string()), ("payload", pa.binary())])
_COMMITTED, _PENDING, _TYPE_0 = "committed", "pending", "type_0"


class Expirations(NamedTuple):
    """What a cleanup finds and does, as frames with the columns of the tables offset_expirations, group_expirations and tombstones.

    ``retention_changed`` is false everywhere: only a warehouse knows the retention of an earlier run.
    """

    offsets: DataFrame
    groups: DataFrame
    tombstones: DataFrame


def expire(
    state: State, *, retention: timedelta | str = "7d", as_of: Moment, semantics: Semantics | str = JAVA, assume_members_gone: bool = False
) -> Expirations:
    """What a cleanup at ``as_of`` removes from the state, by the rules of the broker. Nothing is computed before a frame is used.

    Args:
        state: from ``replay``, or made from tables of a warehouse: ``State`` with frames of one run. Some groups will do, with all of
            their offsets.
        retention: the broker's offsets.retention, for example ``7d``, ``36h`` or a timedelta.
        as_of: the moment of the cleanup.
        semantics: as in ``replay``.
        assume_members_gone: treat groups with members as if their last member had left at ``as_of``.
    Raises:
        UsageError: ``state`` is none; ``retention``, ``as_of`` or ``semantics`` cannot be understood.
    """
    from pyspark.sql import functions as F  # noqa: N812

    if not isinstance(state, State):
        raise UsageError(f"expire takes what replay gives: expire(replay(records), ...). This is of the type {type(state).__name__}.")
    job = ExpirationJob(milliseconds_of(as_of), retention_of(retention), named_semantics(semantics), assume_members_gone)
    place = ("cluster", "offsets_partition")
    columns = [*place, *OFFSET_COLUMNS]
    offsets = state.committed_offsets.select(*columns, F.lit(_COMMITTED).alias("origin")).unionByName(
        state.pending_offsets.select(*columns, F.lit(_PENDING).alias("origin"))
    )
    groups = state.groups.select("cluster", *GROUP_COLUMNS)
    if state.type_0_offsets is not None:
        of_groups = groups.select(*place, "group_id")
        type_0 = state.type_0_offsets.join(of_groups, on=["cluster", "group_id"], how="inner").withColumn("origin", F.lit(_TYPE_0))
        offsets = offsets.unionByName(type_0, allowMissingColumns=True)
    if state.kept_groups is None:
        groups = groups.withColumn("kept_for", F.array().cast("array<string>"))
    else:
        kept_groups = state.kept_groups.groupBy("cluster", "group_id").agg(F.collect_set("kept_for").alias("kept_for"))
        groups = groups.join(kept_groups, on=["cluster", "group_id"], how="left")
    paired = offsets.groupBy(*place).cogroup(groups.groupBy(*place))
    packed = kept(paired.applyInArrow(_rules(job), PACKED).coalesce(task_count(groups.sparkSession)))
    return Expirations(*(frame_of(packed, table) for table in RULE_COLUMNS))


def _rules(job: ExpirationJob) -> Callable[[tuple[pa.Scalar, ...], pa.Table, pa.Table], pa.Table]:
    """The function for a cogroup: the offsets and the groups of one offsets partition -> rows of PACKED."""

    def apply(key: tuple[pa.Scalar, ...], offsets: pa.Table, groups: pa.Table) -> pa.Table:
        cluster, offsets_partition = (scalar.as_py() for scalar in key)
        of_origin = {origin: offsets.filter(pc.equal(offsets["origin"], origin)) for origin in (_COMMITTED, _PENDING, _TYPE_0)}
        type_0 = frozenset(zip(*(of_origin[_TYPE_0][name].to_pylist() for name in PENDING_COLUMNS), strict=True))
        reasons = zip(groups["group_id"].to_pylist(), groups["kept_for"].to_pylist(), strict=True)
        kept_groups = frozenset((group_id, reason) for group_id, of_group in reasons for reason in of_group or ())
        state = StateTables(of_origin[_COMMITTED], of_origin[_PENDING], groups, type_0, kept_groups)
        expirations = expiration_rows((cleaned for _, cleaned in cleanups(state, job)), job, type_0)
        packed = dict(packed_by_table(offsets_partition, expirations))
        return pa.table({"cluster": [cluster] * len(packed), "kind": [*packed], "payload": [*packed.values()]}, _PACKED_ARROW)

    return apply
