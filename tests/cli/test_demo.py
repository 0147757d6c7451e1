"""``groupcoord demo``: the faults in the shop's cluster are found by one command each."""

from __future__ import annotations

import csv
import io
import re
import shutil
from typing import Any

import pytest

from groupcoord_spark.cli.demo import ARCHIVE, CLUSTER, MORE, NIGHTS, OWN_CLUSTER, QUESTIONS
from groupcoord_spark.warehouse import open_warehouse
from tests.cli.warehouse import groupcoord
from tests.warehouse.nights import AS_OF_MS, group, night

FAULTS: dict[str, tuple[tuple[str, ...], list[str]]] = {
    "offsets expired, and the group began again": (
        ("why", "invoice-run", "--topic", "invoices", "--partition", "0"),
        ["expired, 7 d after the group became Empty", "restarted_after_removal, certain"],
    ),
    "a reset to the latest offset skipped records": (("sql", "from skips"), ["search-indexer,product-updates,0", "reset,certain"]),
    "a partition stands still": (("sql", "from stalled"), ["shipping,orders,2,"]),
    "a topic's readers are gone": (("sql", "from orphan_topics"), ["newsletter,1,2,2"]),
    "a transaction hangs": (("sql", "from open_transactions"), ["ledger-writer"]),
    "two services share a group": (("sql", "from shared_group_id"), ["backend,1,product-updates,clicks,pricing-1"]),
}


def printed(demo_warehouse: Any, *words: str) -> str:
    done = groupcoord(*words, "--output", "csv", "--warehouse", demo_warehouse.path)
    assert done.exit_code == 0, done.output
    return done.stdout


def rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_is_found_by_one_command(demo_warehouse: Any, fault: str) -> None:
    words, evidence = FAULTS[fault]
    found = printed(demo_warehouse, *words)
    assert [each for each in evidence if each not in found] == []


def test_no_group_but_those_with_a_fault_is_behind_or_goes(demo_warehouse: Any) -> None:
    behind = {row["group"] for row in rows(printed(demo_warehouse, "list", "--lag")) if int(row["lag"] or 0) > 20}
    assert behind == {"shipping", "ledger", "newsletter-mailer"}
    going = {row["group"] for row in rows(printed(demo_warehouse, "expire")) if row["next_expiry"]}
    assert going == {"invoice-run", "newsletter-mailer"}


def test_the_news_of_the_last_night_are_the_faults_of_its_day(demo_warehouse: Any) -> None:
    news = groupcoord("morning", "--output", "json", "--warehouse", demo_warehouse.path).stdout
    assert re.findall(r'"groups": \["([\w-]+)"\]', news) == ["search-indexer", "ledger", "invoice-run", "shipping"]


def test_nights_are_of_one_clean_log(demo_warehouse: Any) -> None:
    opened = open_warehouse(str(demo_warehouse.path))
    assert [run.as_of_ms for run in opened.finished_runs(CLUSTER)] == list(NIGHTS)
    assert "0 doubts, 0 rows" in groupcoord("warnings", "--warehouse", demo_warehouse.path).stderr


def test_the_demo_asks_five_questions_and_ends_with_ones_own_cluster(demo_warehouse: Any) -> None:
    told = demo_warehouse.summary
    assert re.findall(r"^(\d)\. (.+)$", told, re.MULTILINE) == [(str(n), each.question) for n, each in enumerate(QUESTIONS, 1)]
    assert all(each.question in told for each in MORE)
    assert told.splitlines()[-len(OWN_CLUSTER) :] == list(OWN_CLUSTER)
    assert {"invoice-run", "search-indexer", "shipping", "newsletter-mailer"} <= set(re.findall(r"[\w-]+", told))


def test_a_second_demo_only_answers(demo_warehouse: Any, tmp_path: Any) -> None:
    before = open_warehouse(str(demo_warehouse.path)).finished_runs(CLUSTER)
    again = groupcoord("demo", "--warehouse", demo_warehouse.path, "--logs", tmp_path)
    assert again.exit_code == 0
    assert "new records" not in again.stderr
    assert [run.run_id for run in open_warehouse(str(demo_warehouse.path)).finished_runs(CLUSTER)] == [run.run_id for run in before]


def test_in_a_warehouse_of_several_clusters_the_commands_name_the_demos(demo_warehouse: Any, tmp_path: Any) -> None:
    shutil.copytree(demo_warehouse.path, tmp_path / "w")
    night(tmp_path / "w", "mine", {"groups": [group("mine")]}, as_of_ms=AS_OF_MS)
    told = groupcoord("demo", "--warehouse", tmp_path / "w", "--logs", tmp_path / "logs")
    assert told.exit_code == 0, told.output
    assert told.stdout.count("--cluster shop") >= len(QUESTIONS) + len(MORE)


def test_logs_that_cannot_be_written_are_one_sentence(tmp_path: Any) -> None:
    (tmp_path / "file").write_text("")
    done = groupcoord("demo", "--warehouse", tmp_path / "w", "--logs", tmp_path / "file")
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith("Error: The logs of the demo cannot be written to ")


def test_the_logs_are_small() -> None:
    assert ARCHIVE.stat().st_size < 300_000
