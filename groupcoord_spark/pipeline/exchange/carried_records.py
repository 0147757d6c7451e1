"""The latest records of an earlier run, from the table latest_records, and the topic names that go with them."""

import pyarrow as pa

from groupcoord_spark.errors import WarehouseError
from groupcoord_spark.pipeline.exchange.kept_records import KEPT, as_one, empty_batch
from groupcoord_spark.pipeline.extents import CarriedState
from groupcoord_spark.warehouse import TABLES
from groupcoord_spark.warehouse.declaration import TIMESTAMPS_OUT_OF_RANGE
from groupcoord_spark.warehouse.read import TablesOfRun, rows_at

LATEST_RECORDS, TOPIC_IDS = "latest_records", "topic_ids"
_TABLE = TABLES[LATEST_RECORDS]


def latest_records(warehouse_uri: str, tables: TablesOfRun, cluster: str, offsets_partition: int) -> pa.RecordBatch:
    """Return the latest records of an offsets partition that a run left, as a batch of KEPT in the order of their record offsets.

    Raises WarehouseError where the table cannot be read.
    """
    columns = [*(name.removesuffix("_ms") for name in KEPT.names), TIMESTAMPS_OUT_OF_RANGE.name]
    rows = rows_at(warehouse_uri, _TABLE, tables, cluster, columns, [("offsets_partition", "=", offsets_partition)])
    batches = _TABLE.to_milliseconds(rows).select(KEPT.names).cast(KEPT).sort_by("record_offset").to_batches()
    return as_one(batches) if batches else empty_batch()


def carried_records(warehouse_uri: str, cluster: str, carried: CarriedState, offsets_partition: int) -> pa.RecordBatch:
    """Return the ``latest_records`` that an earlier run wrote. Raises WarehouseError if their number differs or they cannot be read."""
    batch = latest_records(warehouse_uri, carried.tables, cluster, offsets_partition)
    if batch.num_rows != carried.rows[offsets_partition]:
        raise WarehouseError(
            f"Table {LATEST_RECORDS} of {warehouse_uri} has {batch.num_rows} rows of offsets partition {offsets_partition}, and the last"
            f" run wrote {carried.rows[offsets_partition]}. Run the nightly with --full, which reads every log from its beginning."
        )
    return batch


def carried_topic_names(warehouse_uri: str, cluster: str, carried: CarriedState, offsets_partition: int) -> dict[str, str]:
    """Topic id -> topic name, from all records of an offsets partition that earlier runs have read."""
    of_partition = [("offsets_partition", "=", offsets_partition)]
    rows = rows_at(warehouse_uri, TABLES[TOPIC_IDS], carried.tables, cluster, ["topic_id", "topic"], of_partition)
    return dict(zip(rows["topic_id"].to_pylist(), rows["topic"].to_pylist(), strict=True))
