"""``groupcoord doctor --warehouse``: what the runs found, since when, and how the log grew."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from tests.cli import warehouse
from tests.warehouse.nights import AS_OF_MS, DAY_MS, night

HANGING = Path(__file__).parent.parent / "golden" / "sick" / "hanging" / "logs"
FIRST, SECOND, THIRD = (f"2026-01-0{day}T00:00:00.000Z" for day in (1, 2, 3))


def row(offsets_partition: int | None, finding: str, severity: str, log_bytes: int | None, **fields: Any) -> dict[str, Any]:
    return {
        "offsets_partition": offsets_partition,
        "copy": "/dump",
        "finding": finding,
        "severity": severity,
        "subject": None,
        "certainty": None,
        "summary": "Nothing is wrong.",
        "remedy": None,
        "ask": None,
        "evidence": '{"log_bytes": 5}',
        "log_bytes": log_bytes,
        "since_ms": AS_OF_MS,
        "read_at_ms": AS_OF_MS,
        **fields,
    }


@pytest.fixture(scope="module")
def nights(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Three runs: partition 3 has a transaction since the second one and grows; partition 0 shrinks; partition 1 is new."""
    place = tmp_path_factory.mktemp("nights") / "warehouse"
    healthy, hanging = ("healthy", "normal"), ("hanging_transaction", "sick")
    transaction = {"subject": "7", "certainty": "certain", "summary": "It hangs.", "remedy": "End it.", "since_ms": AS_OF_MS + DAY_MS}
    tables: list[list[dict[str, Any]]] = [
        [row(0, *healthy, 900), row(3, *healthy, 1000)],
        [row(0, *healthy, 950), row(3, *hanging, 1500, **transaction)],
        [
            row(0, *healthy, 300),
            row(1, *healthy, 10, since_ms=AS_OF_MS + 2 * DAY_MS),
            row(3, "wide_commit", "watch", 4000, subject="etl", summary="Wide.", remedy="None.", since_ms=AS_OF_MS + 2 * DAY_MS),
            row(3, *hanging, 4000, **transaction),
            row(None, "throwaway_groups", "watch", None, summary="Many.", remedy="Name them.", since_ms=AS_OF_MS + 2 * DAY_MS),
        ],
    ]
    for number, rows in enumerate(tables):
        night(place, "prod", {"topic_health": rows}, as_of_ms=AS_OF_MS + number * DAY_MS)
    return str(place)


def doctor(*arguments: object) -> Result:
    return warehouse.groupcoord("doctor", *map(str, arguments))


def rows_of(*arguments: object) -> list[dict[str, Any]]:
    return [json.loads(line) for line in doctor(*arguments, "--output", "json").stdout.splitlines()]


def test_newest_night_is_shown_worst_first_with_the_growth_of_the_nights(nights: str) -> None:
    result = doctor("--warehouse", nights, "--quiet")
    assert result.exit_code == 0, result.stderr
    assert [line.rstrip() for line in result.stdout.splitlines()] == [
        "SICK   hanging_transaction (certain), partition 3",
        "       It hangs.",
        "       Remedy: End it.",
        f"       Since: the run of {SECOND}.",
        "",
        "WATCH  wide_commit, partition 3",
        "       Wide.",
        "       Remedy: None.",
        f"       Since: the run of {THIRD}.",
        "",
        "WATCH  throwaway_groups, topic",
        "       Many.",
        "       Remedy: Name them.",
        f"       Since: the run of {THIRD}.",
        "",
        "PARTITION BYTES PER-RUN VERDICT",
        "3         4,000 +1,500  hanging_transaction",
        "0         300   -300    healthy",
        "1         10    -       healthy",
        f"Ages are measured from {THIRD}.",
        "",
        "RUN                      BYTES GROWTH",
        f"{FIRST} 1,900 -",
        f"{SECOND} 2,450 +550",
        f"{THIRD} 4,310 +1,860",
        "The topic grew by 1,205 bytes a run.",
    ]


def test_json_has_the_columns_of_a_log_and_those_of_the_nights(nights: str) -> None:
    rows = rows_of("--warehouse", nights)
    assert [(each["offsets_partition"], each["finding"], each["since"], each["bytes_per_night"]) for each in rows] == [
        (3, "hanging_transaction", SECOND, 1500),
        (3, "wide_commit", THIRD, 1500),
        (None, "throwaway_groups", THIRD, None),
        (0, "healthy", FIRST, -300),
        (1, "healthy", THIRD, None),
    ]
    assert rows[0]["log_bytes_by_night"] == {FIRST: 1000, SECOND: 1500, THIRD: 4000}
    assert rows[0]["verdict"] == rows[1]["verdict"] == "hanging_transaction"
    assert set(rows_of(HANGING)[0]) == set(rows[0]) - {"since", "bytes_per_night", "log_bytes_by_night"}


def test_earlier_night_is_shown_as_it_was(nights: str) -> None:
    rows = rows_of("--warehouse", nights, "--at", "2026-01-01T12:00:00Z")
    assert [(each["offsets_partition"], each["finding"], each["log_bytes_by_night"]) for each in rows] == [
        (3, "healthy", {FIRST: 1000}),
        (0, "healthy", {FIRST: 900}),
    ]


@pytest.mark.parametrize(("words", "code"), [("hanging", 3), ("sick", 3), ("wide_commit", 3), ("cleaner_stopped", 0)])
def test_fail_on_looks_at_the_night(nights: str, words: str, code: int) -> None:
    assert doctor("--warehouse", nights, "--fail-on", words).exit_code == code


def test_log_has_its_findings_with_the_night_since_which_they_are_there(nights: str) -> None:
    rows = {(each["offsets_partition"], each["finding"], each["subject"]): each for each in rows_of(HANGING, "--warehouse", nights)}
    known = rows[3, "hanging_transaction", 7]
    assert (known["since"], known["bytes_per_night"]) == (SECOND, 1500)
    others = [each for (_, finding, subject), each in rows.items() if finding == "hanging_transaction" and subject != 7]
    assert others
    assert all(each["since"] is None for each in others)
    shown = doctor(HANGING, "--warehouse", nights).stdout
    assert f"Since: the oldest since the run of {SECOND}, 1 new since the run of {THIRD}." in " ".join(shown.split())
    assert f"       Since: new, the run of {THIRD} did not find it.\n" in shown
    assert "PARTITION BYTES  PER-RUN SEGMENTS DIRTY MISSING VERDICT\n" in shown


def test_variable_names_the_warehouse_only_where_there_is_no_log(nights: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GROUPCOORD_WAREHOUSE", nights)
    assert rows_of()[0]["since"] == SECOND
    assert "since" not in rows_of(HANGING)[0]


def test_night_without_verdicts_is_said(tmp_path: Path) -> None:
    night(tmp_path, "prod", {}, as_of_ms=AS_OF_MS)
    result = doctor("--warehouse", tmp_path)
    assert result.exit_code != 0
    assert "has no verdicts: it read no segments, or an earlier release made it." in result.stderr


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ((), "There is no INPUT, and no ./warehouse."),
        (("--matrix", "--warehouse", "w"), "--matrix: this is asked about a log."),
        (("--settings", "f", "--as-of", "now", "--warehouse", "w"), "--as-of, --settings: this is asked about a log."),
        ((str(HANGING), "--at", "2026-01-01T00:00:00Z"), "add --warehouse."),
    ],
)
def test_questions_that_make_no_sense_are_refused(arguments: tuple[str, ...], sentence: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GROUPCOORD_WAREHOUSE", raising=False)
    result = doctor(*arguments)
    assert result.exit_code == 2
    assert sentence in " ".join(result.stderr.split())
