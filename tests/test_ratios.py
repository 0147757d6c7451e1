"""What benchmarks/ratios.py, which `make ratios` runs, says of figures and of the logs that it measures."""

from __future__ import annotations

import importlib
import json
from dataclasses import replace
from itertools import chain
from pathlib import Path
from types import ModuleType

import pytest

from groupcoord_spark.log import plan_logs, read_segment
from groupcoord_spark.protocol import decode_key, offsets_partition_for
from groupcoord_spark.protocol.record_types import NOT_A_CONTROL_RECORD

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture
def ratios(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("ratios")


def test_more_than_a_quarter_above_the_kept_figure_is_named(ratios: ModuleType) -> None:
    assert ratios.slower({"dump": 1.25, "list": 0.1}, {"dump": 1.0, "list": 0.2}) == []
    (sentence,) = ratios.slower({"dump": 1.26, "list": 0.1}, {"dump": 1.0, "list": 0.2})
    assert sentence == "dump takes 1.26 of the yardstick, 26% more than the 1.00 that are kept."


def test_what_has_no_figure_is_named(ratios: ModuleType) -> None:
    assert ratios.slower({"dump": 1.0}, {}) == ["dump has no figure in ratios.json: run with --write."]
    assert all(figure > 0 for figure in json.loads((BENCHMARKS / "ratios.json").read_text()).values())


def test_the_logs_that_are_measured_are_read_without_loss(ratios: ModuleType, tmp_path: Path) -> None:
    for cell in (ratios.USUAL, *ratios.CORNERS):
        records = 100 * sum(len(batch.records) for batch in cell.unit)
        log = ratios.log_of(replace(cell, records=records, groups=100), tmp_path)
        chunks = {
            partition.offsets_partition: [chunk for segment in partition.segments for chunk in read_segment(segment)]
            for partition in plan_logs([str(log)]).partitions
        }
        assert sum(len(chunk.records) for chunk in chain.from_iterable(chunks.values())) == records
        assert not any(chunk.lost or chunk.doubts for chunk in chain.from_iterable(chunks.values()))
        groups = set()
        for number, of_partition in chunks.items():
            for chunk in of_partition:
                of_data = chunk.records.take(chunk.records.control_type == NOT_A_CONTROL_RECORD)
                keys = [decode_key(key).fields for key in of_data.distinct_keys()[1].to_pylist()]
                assert {offsets_partition_for(key["group_id"], len(chunks)) for key in keys} == {number}
                groups |= {key["group_id"] for key in keys}
        assert len(groups) == 100
