"""Parquet files and Delta tables as raw rows."""

from __future__ import annotations

import datetime
import decimal
import json
from pathlib import Path
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from groupcoord_spark.errors import InputError
from groupcoord_spark.pipeline.read import rows as pipeline_rows
from groupcoord_spark.pipeline.read.rows import RowFiles, read_piece, row_files
from groupcoord_spark.protocol import encode_key
from groupcoord_spark.sources import parquet
from groupcoord_spark.sources.inputs import InputKind
from groupcoord_spark.sources.rows import EVERY_ROW, FILLED_IN, RAW_SCHEMA, ROW_SCHEMA, RowBatch
from tests.conftest import GOLDEN
from tests.sources.exports import of_sparks_kafka_source, raw_rows, text64, write_parquet

LOGS = GOLDEN / "transactions" / "logs"


def files_of(path: Path) -> RowFiles:
    return row_files(InputKind.DELTA if (path / "_delta_log").exists() else InputKind.PARQUET, [str(path)])


def batches_of(path: Path, *, with_bytes: bool = True) -> list[RowBatch]:
    files = files_of(path)
    return [
        batch for piece in files.pieces(EVERY_ROW) for batch in read_piece(files.kind, piece, EVERY_ROW, files.forms, with_bytes=with_bytes)
    ]


def rows_of(path: Path) -> pa.Table:
    return pa.Table.from_batches([batch.rows for batch in batches_of(path)], ROW_SCHEMA)


def table_of(n: int = 1, **columns: object) -> pa.Table:
    usual = {"key": [b"k"] * n, "value": [b"v"] * n, "partition": list(range(n)), "offset": list(range(n))}
    return pa.table({name: column for name, column in {**usual, **columns}.items() if column is not None})


def one_row(tmp_path: Path, table: pa.Table) -> dict[str, object]:
    (row,) = rows_of(write_parquet(tmp_path / "in", table)).to_pylist()
    return row


def test_our_own_raw_schema_comes_back_as_it_was(tmp_path):
    raw = raw_rows(LOGS)
    found = rows_of(write_parquet(tmp_path / "in", raw))
    told = [name for name in RAW_SCHEMA.names if name not in ("source", "position")]
    assert found.select(told).equals(raw.select(told))
    assert found["position"].to_pylist() == list(range(raw.num_rows))
    assert [batch.lacks for batch in batches_of(tmp_path / "in")] == [frozenset()]


def test_sparks_kafka_source_is_read_and_what_it_does_not_tell_is_counted(tmp_path):
    exported = of_sparks_kafka_source(raw_rows(LOGS))
    (batch,) = batches_of(write_parquet(tmp_path / "in", exported))
    assert batch.lacks == {"transactions", "leader_epochs"}
    assert batch.rows["key"].to_pylist() == exported["key"].to_pylist()
    assert batch.rows["record_timestamp_ms"].to_pylist() == [round(each.timestamp() * 1000) for each in exported["timestamp"].to_pylist()]
    assert set(batch.rows["producer_id"].to_pylist()) == {-1}


@pytest.mark.parametrize(
    "column",
    [
        pa.array([-1], pa.timestamp("ms", "UTC")),
        pa.array([-1000], pa.timestamp("us")),
        pa.array([-999_999], pa.timestamp("ns", "UTC")),
        pa.array([-1], pa.int64()),
        pa.array([None], pa.timestamp("us")),
    ],
)
def test_a_time_is_epoch_milliseconds_and_kafkas_minus_one_stays(tmp_path, column):
    assert one_row(tmp_path, table_of(timestamp=column))["record_timestamp_ms"] == -1


def test_a_time_without_a_zone_is_utc(tmp_path):
    moment = datetime.datetime(2026, 11, 21, 8, 0, 0, 123000)
    assert one_row(tmp_path, table_of(timestamp=pa.array([moment], pa.timestamp("us"))))["record_timestamp_ms"] == 1_795_248_000_123


@pytest.mark.parametrize("kind", [pa.large_binary(), pa.dictionary(pa.int32(), pa.binary()), pa.binary(1), pa.binary_view()])
def test_bytes_are_taken_of_any_binary_type(tmp_path, kind):
    assert one_row(tmp_path, table_of(key=pa.array([b"k"], pa.binary()).cast(kind)))["key"] == b"k"


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string()), pa.string_view()])
def test_text_is_taken_of_any_string_type(tmp_path, kind):
    texts = {"topic": ["__consumer_offsets", "orders"], "control_type": ["ABORT", None], "cluster": ["main", None], "offset": ["7", "8"]}
    table = table_of(2, **{name: pa.array(column, pa.string()).cast(kind) for name, column in texts.items()})
    (row,) = rows_of(write_parquet(tmp_path / "in", table)).to_pylist()
    assert [row[name] for name in ("control_type", "cluster", "record_offset", "fault")] == ["ABORT", "main", 7, None]


@pytest.mark.parametrize("encode", [text64, bytes.hex])
@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())])
def test_text_of_bytes_is_decoded_by_the_form_of_its_column(tmp_path, encode, kind):
    raw = raw_rows(LOGS)
    texts = {
        name: pa.array([None if each is None else encode(each) for each in raw[name].to_pylist()]).cast(kind) for name in ("key", "value")
    }
    texts["value"] = pa.array(["" if each is None else each for each in texts["value"].to_pylist()]).cast(kind)
    table = pa.table({**{name: raw[name] for name in raw.column_names}, **texts})
    (batch,) = batches_of(write_parquet(tmp_path / "in", table))
    assert pa.table([batch.rows["key"], batch.rows["value"]], ["key", "value"]).equals(raw.select(["key", "value"]).combine_chunks())
    assert batch.counts == {"value_empty": raw["value"].null_count}


def test_text_that_is_not_in_the_form_of_its_column_is_a_fault_of_its_row(tmp_path):
    keys = [text64(encode_key(2, {"group_id": group_id})) for group_id in "abc"]
    rows = rows_of(write_parquet(tmp_path / "in", table_of(4, key=[*keys, "key!"]))).to_pylist()
    assert [row["fault"] for row in rows] == [None, None, None, "row_malformed"]
    assert rows[3]["detail"] == "The key cannot be read: it is not base64, the form of the first rows: '!' is not a base64 character."
    assert rows[3]["key"] == b"key!"


def test_a_type_that_is_neither_bytes_nor_text_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"the column value is int64. It must be BINARY"):
        one_row(tmp_path, table_of(value=[7]))


def test_columns_that_decode_filled_in_are_not_there(tmp_path):
    """Spark keeps the metadata of columns in the file: a table of decoded rows of Spark's Kafka source lacks transactions."""
    raw = raw_rows(LOGS)
    fields = [{"name": name, "metadata": {FILLED_IN: True} if name == "is_transactional" else {}} for name in raw.column_names]
    schema = raw.schema.with_metadata({"org.apache.spark.sql.parquet.row.metadata": json.dumps({"type": "struct", "fields": fields})})
    write_parquet(tmp_path / "in", raw.cast(schema))
    assert [batch.lacks for batch in batches_of(tmp_path / "in")] == [{"transactions"}]


MS = 1_795_000_000_123


@pytest.mark.parametrize(
    ("times", "read", "counts"),
    [
        (pa.array([MS, -1]), [MS, -1], {}),
        (pa.array([MS // 1000, None]), [MS - 123, -1], {"seconds": 1}),
        (pa.array([MS * 1000 + 7, MS]), [MS, MS], {"microseconds": 1}),
        (pa.array([MS * 1_000_000 + 7]), [MS], {"nanoseconds": 1}),
        (pa.array([MS / 1000, None]), [MS, -1], {"seconds": 1}),
        (pa.array([float(MS), float("nan")]), [MS, -1], {}),
        (pa.array([MS * 1000.0]), [MS], {"microseconds": 1}),
        (pa.array([decimal.Decimal(MS)], pa.decimal128(20, 0)), [MS], {}),
        (pa.array([5, 0, MS]), [5, 0, MS], {"timestamp_implausible": 2}),
        (pa.array([MS]).cast(pa.timestamp("s")), [MS], {"microseconds": 1}),
        (pa.array([MS * 1000]).cast(pa.timestamp("us", "UTC")), [MS], {}),
    ],
)  # fmt: skip
def test_times_are_read_in_the_unit_that_makes_them_plausible(tmp_path, times, read, counts):
    (batch,) = batches_of(write_parquet(tmp_path / "in", table_of(len(times), timestamp=times)))
    assert batch.rows["record_timestamp_ms"].to_pylist() == read
    assert batch.counts == counts
    assert ("timestamps" in batch.lacks) == (-1 in read and -1 not in times.to_pylist())


def test_missing_columns_are_named(tmp_path):
    with pytest.raises(InputError, match=r"part-00000\S+: there is no column 'partition', 'offset'\. Rows .* as Spark's Kafka source"):
        rows_of(write_parquet(tmp_path / "in", table_of(partition=None, offset=None)))


def test_names_of_columns_are_not_case_sensitive_and_extra_ones_do_no_harm(tmp_path):
    table = table_of(timestampType=[0], Producer_Id=[None]).rename_columns(["KEY", "Value", "Partition", "Offset", "timestampType", "X"])
    assert one_row(tmp_path, table)["fault"] is None


@pytest.mark.parametrize(
    ("name", "value"), [("partition", None), ("partition", -1), ("partition", 2**31), ("offset", None), ("offset", -5)]
)
def test_a_row_without_a_place_keeps_its_bytes_and_says_why(tmp_path, name, value):
    row = one_row(tmp_path, table_of(**{name: pa.array([value], pa.int64())}))
    assert (row["fault"], row["key"], row["value"]) == ("row_without_place", b"k", b"v")
    assert name in str(row["detail"])
    assert (row["offsets_partition"], row["record_offset"]) == ((-1, 0) if name == "partition" else (0, None))


def test_rows_of_other_topics_are_counted_and_left_out(tmp_path):
    table = table_of(3, topic=["orders", "__consumer_offsets", None])
    (batch,) = batches_of(write_parquet(tmp_path / "in", table))
    assert (batch.other_topics, batch.rows["record_offset"].to_pylist(), batch.rows["position"].to_pylist()) == (1, [1, 2], [1, 2])
    assert batch.topics == {"orders"}


@pytest.mark.parametrize("kind", [pa.string(), pa.string_view()])
def test_other_topics_are_named_where_their_rows_are_not_read(tmp_path, kind):
    table = table_of(2, topic=pa.array(["orders", "payments"], pa.string()).cast(kind))
    found = batches_of(write_parquet(tmp_path / "in", table))
    assert sum(batch.other_topics for batch in found) == 2
    assert frozenset().union(*(batch.topics for batch in found)) == {"orders", "payments"}


def test_columns_that_only_the_path_tells_are_read(tmp_path):
    pq.write_to_dataset(table_of(3, topic=["__consumer_offsets", "a b", "a b"]), tmp_path / "in", partition_cols=["topic", "partition"])
    found = [(batch.other_topics, batch.rows["offsets_partition"].to_pylist(), [*batch.topics]) for batch in batches_of(tmp_path / "in")]
    assert sorted(found) == [(0, [0], []), (1, [], ["a b"]), (1, [], ["a b"])]


def test_decoded_rows_are_read_by_the_place_of_their_records(tmp_path):
    """Their columns topic and partition are the ones of the offset that was committed."""
    table = table_of(2, topic=["orders", None], partition=[7, None], offset=None, offsets_partition=[1, 1], record_offset=[5, 6])
    (batch,) = batches_of(write_parquet(tmp_path / "in", table))
    assert (batch.other_topics, batch.rows["record_offset"].to_pylist(), batch.rows["fault"].null_count) == (0, [5, 6], 2)


def test_numbers_may_be_texts_and_what_is_no_number_is_a_row_with_a_fault(tmp_path):
    table = table_of(4, offset=["0", " 1 ", "x", None], producer_id=["7", "many", None, "8"], leader_epoch=["none", "3", None, "1"])
    (batch,) = batches_of(write_parquet(tmp_path / "in", table))
    rows = batch.rows.select(["record_offset", "producer_id", "leader_epoch", "fault", "detail"]).to_pylist()
    assert [list(row.values())[:4] for row in rows] == [
        [0, 7, -1, None],
        [1, -1, 3, "row_malformed"],
        [None, -1, -1, "row_without_place"],
        [None, 8, 1, "row_without_place"],
    ]
    assert rows[1]["detail"] == "producer_id is not a BIGINT."


def test_a_column_of_another_type_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"the column producer_epoch is struct<.*>\. It must be SMALLINT\."):
        one_row(tmp_path, table_of(producer_epoch=[{"x": 1}]))


def test_a_large_file_is_several_pieces(tmp_path, monkeypatch):
    pq.write_table(table_of(10), tmp_path / "in", row_group_size=4)
    monkeypatch.setattr(pipeline_rows, "PIECE_BYTES", (tmp_path / "in").stat().st_size // 3 + 1)
    pieces = files_of(tmp_path / "in").pieces(EVERY_ROW)
    of_pieces = [[row for batch in parquet.read_parquet(piece) for row in batch.rows["position"].to_pylist()] for piece in pieces]
    assert of_pieces == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]


def test_a_flipped_bit_of_a_page_with_a_checksum_is_told(tmp_path):
    path = tmp_path / "rows.parquet"
    plain = {"compression": "none", "use_dictionary": False, "write_statistics": False}
    pq.write_table(table_of(value=[b"v" * 500]), path, write_page_checksum=True, **plain)
    content = bytearray(path.read_bytes())
    content[content.index(b"v" * 500) + 250] ^= 4
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"the rows cannot be read: .*checksum"):
        rows_of(path)


def test_places_are_read_without_keys_and_values(tmp_path):
    write_parquet(tmp_path / "in.parquet", raw_rows(LOGS))
    whole, places = (
        pa.Table.from_batches([batch.rows for batch in batches_of(tmp_path / "in.parquet", with_bytes=with_bytes)])
        for with_bytes in (True, False)
    )
    names = ["cluster", "offsets_partition", "record_offset", "fault"]
    assert places.select(names) == whole.select(names)
    assert (places["key"].null_count, places["value"].null_count) == (len(places), len(places))


def test_a_file_that_is_cut_is_told(tmp_path):
    pq.write_table(table_of(10), tmp_path / "in")
    (tmp_path / "in").write_bytes((tmp_path / "in").read_bytes()[:-10])
    with pytest.raises(InputError, match="not a Parquet file that can be read"):
        rows_of(tmp_path / "in")


class TestDelta:
    def test_is_read_at_its_newest_version_whatever_files_lie_around(self, tmp_path):
        raw = raw_rows(LOGS)
        write_deltalake(str(tmp_path / "in"), table_of())
        write_deltalake(str(tmp_path / "in"), raw, mode="overwrite", schema_mode="overwrite", partition_by=["offsets_partition"])
        found = rows_of(tmp_path / "in").sort_by([("offsets_partition", "ascending"), ("record_offset", "ascending")])
        assert found["key"].to_pylist() == raw["key"].to_pylist()

    @pytest.mark.parametrize("change", ["delete", "update", "merge"])
    def test_that_delta_rs_changed_has_views_in_its_files_and_is_read(self, tmp_path, change):
        raw = raw_rows(LOGS).drop_columns(["source", "position"])
        place, values = str(tmp_path / "in"), raw["value"].to_pylist()
        write_deltalake(place, raw, configuration={"delta.enableChangeDataFeed": "true"})
        if change == "delete":
            DeltaTable(place).delete("record_offset < 0")
            DeltaTable(place).delete("record_offset = 0")
            values = [value for value, offset in zip(values, raw["record_offset"].to_pylist(), strict=True) if offset]
        elif change == "update":
            DeltaTable(place).update(updates={"cluster": "'main'"})
        else:
            merged = DeltaTable(place).merge(
                raw,
                "s.offsets_partition = t.offsets_partition AND s.record_offset = t.record_offset",
                source_alias="s",
                target_alias="t",
            )
            merged.when_matched_update_all().when_not_matched_insert_all().execute()
        kinds = {pq.read_schema(file).field("key").type for file in DeltaTable(place).file_uris()}
        found = rows_of(tmp_path / "in").sort_by([("offsets_partition", "ascending"), ("record_offset", "ascending")])
        assert (kinds, found["value"].to_pylist()) == ({pa.binary_view()}, values)

    def test_with_rows_marked_as_deleted_or_renamed_columns_is_refused(self, tmp_path, monkeypatch):
        write_deltalake(str(tmp_path / "in"), table_of(2), configuration={"delta.enableDeletionVectors": "true"})
        assert rows_of(tmp_path / "in").num_rows == 2
        monkeypatch.setattr(DeltaTable, "deletion_vectors", lambda table: pa.table({"filepath": ["x"]}))
        with pytest.raises(InputError, match=r"marks rows as deleted \(deletion vectors\).* Write it to Parquet with Spark"):
            files_of(tmp_path / "in")

    def test_has_files_of_the_same_name_in_several_directories(self, tmp_path):
        table = self.write_with_files(tmp_path / "in", {"x.parquet": (0, 9), "old/x.parquet": (0, 9), "new/x.parquet": (10, 19)})
        pieces = files_of(table).pieces({0: ((10, 20),)})
        assert [piece.uri.removeprefix(f"{table}/") for piece in pieces] == ["new/x.parquet"]

    @pytest.mark.parametrize("prefix", ["file://", "file:", "", "FILE:"])
    @pytest.mark.parametrize("wanted", [EVERY_ROW, {0: ((2, 9),), 1: ()}])
    def test_that_is_a_shallow_clone_is_read_from_the_files_of_the_other_table(self, tmp_path, prefix, wanted):
        pq.write_table(table_of(3, partition=[0, 0, 1], offset=[1, 2, 3]), tmp_path / "other 50%.parquet")
        escaped = quote(str(tmp_path / "other 50%.parquet"))
        table = self.write_with_files(tmp_path / "in", {f"{prefix}{escaped}": (1, 3)})
        (batch,) = [batch for piece in files_of(table).pieces(wanted) for batch in read_piece(InputKind.DELTA, piece, wanted)]
        assert batch.rows["record_offset"].to_pylist() == ([1, 2, 3] if wanted is EVERY_ROW else [2])
        assert batch.rows["source"].to_pylist()[0] == str(tmp_path / "other 50%.parquet")

    def test_that_is_a_shallow_clone_beyond_reach_is_refused(self, tmp_path):
        table = self.write_with_files(tmp_path / "in", {"dbfs:/other/x.parquet": (0, 9)})
        with pytest.raises(InputError, match=r"dbfs:/other/x\.parquet: this is a path of Databricks, and /dbfs is not mounted here"):
            files_of(table).pieces(EVERY_ROW)

    def test_with_a_path_out_of_the_table_is_left_to_spark(self, tmp_path):
        table = self.write_with_files(tmp_path / "in", {"../other/x.parquet": (0, 9)})
        assert not parquet.is_told_by_its_files([str(table)])

    @pytest.mark.parametrize("path", ["part:0/x.parquet", "at=2026-11-28T08:00:00/x.parquet"])
    def test_with_a_colon_in_a_path_below_the_table_is_read_from_its_files(self, tmp_path, path):
        table = self.write_with_files(tmp_path / "in", {path: (0, 9)})
        assert parquet.is_told_by_its_files([str(table)])

    def write_with_files(self, place, files):
        """Return a table of files that are not there. files: path -> lowest and highest record offset."""
        write_deltalake(str(place), table_of().slice(0, 0))
        add = {"partitionValues": {}, "size": 100, "modificationTime": 0, "dataChange": True}
        lines = []
        for path, (low, high) in files.items():
            least, most = ({"partition": 0, "offset": offset} for offset in (low, high))
            stats = {"numRecords": 10, "minValues": least, "maxValues": most, "nullCount": {"partition": 0, "offset": 0}}
            lines.append(json.dumps({"add": {**add, "path": path, "stats": json.dumps(stats)}}))
        (place / "_delta_log" / f"{1:020}.json").write_text("\n".join(lines))
        return place

    def test_that_cannot_be_opened_is_told(self, tmp_path):
        (tmp_path / "in" / "_delta_log").mkdir(parents=True)
        with pytest.raises(InputError, match=r"in: the Delta table cannot be opened"):
            files_of(tmp_path / "in")
