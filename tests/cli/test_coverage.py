"""``groupcoord coverage``."""

from __future__ import annotations

import csv
import io

import pyarrow as pa
import pytest

from groupcoord_spark.cli.coverage import of_all, reasons_of, share_of_offsets
from tests.cli.warehouse import groupcoord
from tests.pipeline.logs import offset_key


@pytest.mark.usefixtures("sample_warehouse")
class TestCoverage:
    def test_every_kind_of_record_is_a_row_and_all_of_them_are_counted(self, sample_warehouse):
        result = groupcoord("coverage", "--warehouse", sample_warehouse.path, "--output", "csv")
        rows = list(csv.DictReader(io.StringIO(result.stdout)))
        assert [(row["key_name"], row["value_version"]) for row in rows] == [
            ("OffsetCommitKey", ""),
            ("OffsetCommitKey", "1"),
            ("OffsetCommitKey", "4"),
            ("GroupMetadataKey", ""),
            ("GroupMetadataKey", "3"),
        ]
        assert sum(int(row["records"]) for row in rows) == sum(int(row["decoded"]) for row in rows) == 173
        assert all(row["misplaced"] == row["quarantined"] == "0" for row in rows)

    def test_partitions_tell_what_survived_of_their_log(self, sample_warehouse):
        lines = groupcoord("coverage", "--partitions", "--warehouse", sample_warehouse.path).stdout.splitlines()
        assert lines[0].split()[-1] == "SURVIVING-SHARE"
        assert [line.split()[0] for line in lines[1:]] == ["0", "1", "2", "3", "4"]
        assert {line.split()[-1] for line in lines[1:]} == {"1.0"}


def test_surviving_share_is_records_against_the_span_of_their_offsets():
    assert share_of_offsets({"records": 30, "first_offset": 100, "end_offset": 200}) == 0.3
    assert share_of_offsets({"records": 0, "first_offset": None, "end_offset": 200}) is None


def test_surviving_share_of_all_is_told_beside_the_counts(sample_warehouse):
    told = groupcoord("coverage", "--warehouse", sample_warehouse.path).stderr
    assert told == (
        "The table counts 173 records that the runs up to this one read, each of them once.\n"
        "The copy of this run has 173 records (control records included) on 173 offsets of the log (surviving share 1.0000)"
        " in 5 offsets partitions.\n"
    )
    thinned = {"records": 30, "first_offset": 100, "end_offset": 200}
    told = of_all([thinned, {"records": 0, "first_offset": None, "end_offset": 7}])
    assert "30 records (control records included) on 100 offsets of the log (surviving share 0.3000) in 1 offsets partition: counts" in told


def test_reasons_are_counted_for_the_kind_of_record_that_they_are_about():
    key = offset_key()
    rows = [
        ("value_truncated", key, b"\0\3", 1),
        ("value_too_short", key, b"\0", 1),
        ("unknown_value_version", key, b"\0\x09", 1),
        ("key_truncated", key[:5], b"\0\3", 1),
        ("key_too_short", b"\0", None, 1),
        ("batch_crc_mismatch", None, None, 7),
        ("zero_gap", None, None, None),
        ("row_malformed", None, b"{oops", 1),
    ]
    batch = pa.RecordBatch.from_pylist([dict(zip(("reason", "key", "value", "records"), row, strict=True)) for row in rows])
    assert reasons_of([batch]) == {
        (1, 3): {"value_truncated": 1},
        (1, None): {"value_too_short": 1, "key_truncated": 1},
        (1, 9): {"unknown_value_version": 1},
        (-1, None): {"key_too_short": 1, "batch_crc_mismatch": 7, "zero_gap": 1, "row_malformed": 1},
    }
