"""Rules about groups that fill the log, on logs of several shapes and sizes that are written here."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from groupcoord_spark.doctor import Finding, HealthSettings, KnownTransactions, diagnose, read_copies
from groupcoord_spark.protocol import encode_key, encode_value
from tests.log.log_writer import T0, Rec, batch, write_segment

DAY_MS = 86_400_000


def commit(group_id: str, partition: int = 0, *, offset: int = 5, metadata: str = "", topic: str = "orders") -> Rec:
    fields = {"committed_offset": offset, "metadata": metadata, "commit_timestamp_ms": 1, "leader_epoch": -1}
    return Rec(encode_key(1, {"group_id": group_id, "topic": topic, "partition": partition}), encode_value(1, 3, fields))


def findings(directory: Path, batches: Iterable[tuple[int, list[Rec]]], **options: Any) -> list[tuple[str, Any]]:
    """(finding, subject), worst first. batches: milliseconds since T0, and records."""
    return [(finding.finding, finding.subject) for finding in found(directory, batches, **options)]


def found(directory: Path, batches: Iterable[tuple[int, list[Rec]]], **options: Any) -> tuple[Finding, ...]:
    entries, offset = [], 0
    for since_ms, records in batches:
        numbered = [Rec(record.key, record.value, offset_delta=place) for place, record in enumerate(records)]
        entries.append(batch(offset, numbered, base_timestamp=T0 + since_ms, **options))
        offset += len(records)
    write_segment(directory, entries)
    return diagnose(read_copies([str(directory)]), HealthSettings(), KnownTransactions()).findings


@pytest.mark.parametrize("groups", [2, 3, 8])
def test_every_group_is_named_that_repeats_its_commits_and_has_less_than_half_of_the_log(groups: int, tmp_path: Path) -> None:
    repeated = [(place * 100 + group, [commit(f"stuck-{group}")]) for place in range(400 // groups) for group in range(groups)]
    plain = [(place * 5_000, [commit("plain", offset=place)]) for place in range(20)]
    assert sorted(findings(tmp_path, [*repeated, *plain])) == [("hot_group", f"stuck-{group}") for group in range(groups)]


def test_of_very_many_groups_alike_the_largest_is_named_with_their_number(tmp_path: Path) -> None:
    repeated = [(place * 100, [commit(f"stuck-{group}")]) for group in range(100) for place in range(6 if group == 40 else 5)]
    (finding,) = found(tmp_path, repeated)
    assert (finding.finding, finding.subject, finding.evidence["groups_alike"]) == ("hot_group", "stuck-40", 100)
    assert "Together 100 such groups wrote 100 %." in finding.summary


def test_group_that_joined_long_ago_and_repeats_its_commits_now_is_hot(tmp_path: Path) -> None:
    # The cleaner keeps an offset of a partition that the group no longer reads.
    old = [(0, [commit("stuck", partition=7)])]
    assert findings(tmp_path, [*old, *((9 * DAY_MS + place * 50, [commit("stuck")]) for place in range(200))]) == [("hot_group", "stuck")]


@pytest.mark.parametrize("interval_ms", [1_000, 5_000])
def test_commits_at_the_interval_of_clients_are_ordinary_where_nothing_moves(interval_ms: int, tmp_path: Path) -> None:
    assert findings(tmp_path, [(place * interval_ms, [commit("idle")]) for place in range(500)]) == []


def test_fast_commits_that_move_are_ordinary(tmp_path: Path) -> None:
    assert findings(tmp_path, [(place * 10, [commit("busy", offset=place)]) for place in range(500)]) == []


def test_commits_of_several_groups_in_one_batch_count_for_the_group_of_each(tmp_path: Path) -> None:
    # A coordinator puts commits that come at once into one batch: no group of these commits many partitions.
    batches = [(round * 5_000, [commit(f"app-{group}", offset=round) for group in range(150)]) for round in range(10)]
    assert findings(tmp_path, batches) == []


def test_members_that_commit_one_partition_at_once_are_no_wide_commit(tmp_path: Path) -> None:
    batches = [(round * 5_000, [commit("busy", offset=round * 200 + place) for place in range(200)]) for round in range(10)]
    assert findings(tmp_path, batches) == []


def test_two_groups_with_wide_commits_fill_a_log_together(tmp_path: Path) -> None:
    batches = [
        (round * 5_000, [commit(name, partition, offset=round) for partition in range(120)])
        for round in range(5)
        for name in ("wide-a", "wide-b")
    ]
    assert sorted(findings(tmp_path, batches)) == [("wide_commit", "wide-a"), ("wide_commit", "wide-b")]


@pytest.mark.parametrize("length", [600, 4_096])
def test_metadata_is_judged_by_its_share_of_the_log(length: int, tmp_path: Path) -> None:
    batches = [(place * 5_000, [commit("stateful", metadata="x" * length, offset=place)]) for place in range(20)]
    assert findings(tmp_path, batches) == [("large_metadata", "stateful")]


def test_shares_of_groups_with_long_metadata_add_up_to_that_of_all_of_them(tmp_path: Path) -> None:
    """Batches of few bytes are larger than their records: of the bytes of the log each group has 27 %, of those of the records 35.4 %."""
    long = [(place * 60_000, [commit(f"stateful-{place % 2}", metadata="x" * 4_096, offset=place)]) for place in range(6)]
    first, second = found(tmp_path, [*long, *((place * 6_000, [commit("plain", offset=place)]) for place in range(200))])
    shares = re.compile(r"wrote (\d+) % of [0-9.]+ kB of records: .* Together 2 such groups wrote (\d+) %\.")
    assert [shares.findall(finding.summary) for finding in (first, second)] == [[("35", "71")]] * 2


def test_one_group_that_is_made_anew_is_one(tmp_path: Path) -> None:
    (finding,) = found(tmp_path, throwaway(consumers(1), 60))
    assert finding.summary.startswith("1 of 1 group is created for each start of a client (1 named by console-consumer)")


def throwaway(names: Iterable[str], commits: int) -> list[tuple[int, list[Rec]]]:
    return [(place * 5_000, [commit(name, offset=place)]) for name in names for place in range(commits)]


def consumers(count: int) -> list[str]:
    return [f"console-consumer-{number}" for number in range(10_000, 10_000 + count)]


PLAIN = [f"app-{number}" for number in range(12)]


@pytest.mark.parametrize(
    ("throwaways", "others", "is_finding"),
    [
        ((consumers(9), 40), (PLAIN[:2], 40), True),  # few groups that are most of a small log
        ((consumers(10), 10), (["busy"], 20_000), False),  # most groups, and nothing next to one that is busy
        ((consumers(10), 10), (PLAIN, 1_200), False),
        ((consumers(30), 4), (PLAIN, 100), True),  # most groups, and a twelfth of the records
        ((consumers(1_200), 1), ([], 0), True),
        (([f"perf-consumer-{number}" for number in range(40)], 4), ([], 0), True),
        (([uuid.UUID(int=number << 96).hex.upper() for number in range(40)], 4), ([], 0), True),
        (([f"spark-kafka-source-{uuid.UUID(int=number)}-7-driver-0" for number in range(40)], 4), ([], 0), True),
        (([f"tenant-{uuid.UUID(int=number)}-orders" for number in range(40)], 4), ([], 0), False),
        ((consumers(3), 4), ([], 0), False),
    ],
)
def test_throwaway_groups_are_judged_by_their_share(throwaways: Any, others: Any, is_finding: bool, tmp_path: Path) -> None:
    assert [name for name, _ in findings(tmp_path, [*throwaway(*throwaways), *throwaway(*others)])] == ["throwaway_groups"] * is_finding
