"""``groupcoord coverage``."""

from __future__ import annotations

import csv
import io

import pytest

from groupcoord_spark.cli.coverage import completeness
from tests.cli.warehouse import groupcoord


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

    def test_partitions_tell_how_complete_their_log_is(self, sample_warehouse):
        lines = groupcoord("coverage", "--partitions", "--warehouse", sample_warehouse.path).stdout.splitlines()
        assert lines[0].split()[-1] == "COMPLETENESS"
        assert [line.split()[0] for line in lines[1:]] == ["0", "1", "2", "3", "4"]
        assert {line.split()[-1] for line in lines[1:]} == {"1.0"}


def test_completeness_is_records_against_the_span_of_their_offsets():
    assert completeness({"records": 30, "first_offset": 100, "end_offset": 200}) == 0.3
    assert completeness({"records": 0, "first_offset": None, "end_offset": 200}) is None
