"""The table topic_health: a run writes what doctor says, also where it reads only new records."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from groupcoord_spark.doctor import FilesBeside, HealthSettings, all_files_beside, diagnose, read_copies, read_transaction_states
from groupcoord_spark.log import PartitionLog
from groupcoord_spark.pipeline import health_rows
from groupcoord_spark.storage.location import Location
from tests.cli.warehouse import groupcoord
from tests.conftest import DAY_MS, FIVE_NIGHTS
from tests.doctor.copies import GOLDEN, SICK
from tests.doctor.test_rules_of_groups import commit
from tests.log.log_writer import T0, batch, marker, write_segment
from tests.running import AS_OF_MS, rows_of, run

if TYPE_CHECKING:
    from tests.local_session import LocalSession

Findings = list[tuple[int | None, str, str, str | None, str | None, str]]


def of_doctor(logs: Path, as_of_ms: int = AS_OF_MS) -> Findings:
    copies = read_copies([str(logs)])
    known = read_transaction_states([Location.of(copy.uri) for copy in copies])
    findings = diagnose(copies, HealthSettings(), known, as_of_ms=as_of_ms).findings
    return sorted_findings(
        (
            each.offsets_partition,
            each.finding,
            each.severity.word,
            None if each.subject is None else str(each.subject),
            each.certainty,
            each.summary,
        )
        for each in findings
    )


def sorted_findings(findings: Iterable[Any]) -> Findings:
    return sorted(findings, key=str)


def of_night(warehouse: Path) -> Findings:
    columns = ("offsets_partition", "finding", "severity", "subject", "certainty", "summary")
    rows = rows_of(warehouse, "topic_health")
    return sorted_findings(tuple(row[name] for name in columns) for row in rows if row["finding"] not in ("healthy", "not_due"))


@pytest.mark.parametrize("corpus", ["hanging", "hot", "uncleaned/second"])
def test_first_night_writes_what_doctor_says(local: LocalSession, tmp_path: Path, corpus: str) -> None:
    logs = SICK / corpus / "logs"
    run(local, tmp_path / "warehouse", logs)
    assert of_night(tmp_path / "warehouse") == of_doctor(logs)
    rows = rows_of(tmp_path / "warehouse", "topic_health")
    assert {row["offsets_partition"] for row in rows} >= set(range(5))
    sizes = {number: sum(path.stat().st_size for path in (logs / f"__consumer_offsets-{number}").glob("*.log")) for number in range(5)}
    assert all(row["log_bytes"] == sizes[row["offsets_partition"]] for row in rows if row["offsets_partition"] is not None)


@pytest.mark.parametrize(("corpus", "with_transaction"), [("hanging", {0, 1, 2, 3, 4}), ("healthy", {3})])
def test_night_without_anything_new_repeats_the_findings_and_since_when(
    local: LocalSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, corpus: str, with_transaction: set[int]
) -> None:
    logs, warehouse = SICK / corpus / "logs", tmp_path / "warehouse"
    first_ms, second_ms = AS_OF_MS + DAY_MS, AS_OF_MS + 2 * DAY_MS
    run(local, warehouse, logs, as_of_ms=first_ms)
    opened = []

    def recorded(log: PartitionLog) -> FilesBeside:
        opened.append(log.offsets_partition)
        return all_files_beside(log)

    monkeypatch.setattr(health_rows, "all_files_beside", recorded)
    run(local, warehouse, logs, as_of_ms=second_ms)
    whole, in_part = (of_doctor(logs, at_ms) for at_ms in (first_ms, second_ms))
    # Transactions age with the as-of of the run, also where nothing is new.
    assert of_night(warehouse) == sorted_findings([*(row for row in whole if row[4] is None), *(row for row in in_part if row[4])])
    assert {row["since"] for row in rows_of(warehouse, "topic_health")} == {first_ms}
    # the files next to the segments are opened only where a transaction is judged again
    assert sorted(opened) == sorted(with_transaction)


def test_nights_of_a_healthy_broker(local: LocalSession, tmp_path: Path) -> None:
    """Transactions begin and end from run to run, and nothing else is found. The page shows what doctor says of the last run."""
    warehouse = tmp_path / "warehouse"
    for night in (1, 2, 3):
        logs = GOLDEN / "nights" / str(night) / "logs"
        run(local, warehouse, logs, as_of_ms=FIVE_NIGHTS[night])
        doctors, nights = ({each[:4] for each in findings} for findings in (of_doctor(logs, FIVE_NIGHTS[night]), of_night(warehouse)))
        assert nights == doctors
    page = (GOLDEN.parents[1] / "docs" / "how-to" / "a-large-offsets-topic.md").read_text()
    shown = page.partition("$ groupcoord doctor --warehouse ./warehouse\n")[2].partition("```")[0]
    printed = groupcoord("doctor", "--warehouse", str(warehouse)).stdout
    assert [line.rstrip() for line in printed.splitlines()] == shown.splitlines()


def test_night_that_reads_a_log_from_its_beginning_keeps_what_the_log_cleaner_will_make_of_it(local: LocalSession, tmp_path: Path) -> None:
    logs, warehouse = GOLDEN / "convert" / "logs", tmp_path / "warehouse"
    for options in ({}, {}, {"full": True}):
        run(local, warehouse, logs, **options)
        (finding,) = [row for row in rows_of(warehouse, "topic_health") if row["finding"] == "refused_while_cleaning"]
        assert (finding["offsets_partition"], finding["subject"], finding["severity"]) == (3, "mig-back-and-forth", "watch")
        assert "KAFKA-21117" in finding["summary"]
        assert finding["since"] == AS_OF_MS


def test_what_a_night_finds_rests_on_whole_logs(local: LocalSession, tmp_path: Path) -> None:
    # The new records alone are of one hot group, of throwaway groups, and the end of the one open transaction.
    logs, warehouse = tmp_path / "logs", tmp_path / "warehouse"
    plain = [batch(place, [commit(f"app-{place % 300}", offset=place)], base_timestamp=T0 + place * 5_000) for place in range(3_000)]
    opened = batch(3_000, [commit("app")], attributes=0x10, producer_id=4000, producer_epoch=3, base_timestamp=T0 + 15_000_000)
    write_segment(logs, [*plain, opened])
    run(local, warehouse, logs, as_of_ms=T0 + 15_060_000)
    assert [row["finding"] for row in rows_of(warehouse, "topic_health")] == ["open_transaction_young"]
    new = [commit("stuck")] * 100 + [commit(f"console-consumer-{number}") for number in range(10_000, 10_060)]
    batches = [batch(3_002 + place, [record], base_timestamp=T0 + 16_000_000 + place) for place, record in enumerate(new)]
    write_segment(logs, [*plain, opened, marker(3_001, 0), *batches])
    run(local, warehouse, logs, as_of_ms=AS_OF_MS + DAY_MS)
    (row,) = rows_of(warehouse, "topic_health")
    assert (row["offsets_partition"], row["finding"], row["severity"], of_doctor(logs)) == (0, "not_due", "normal", [])
