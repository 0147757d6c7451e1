"""The conformance runner notices the faults."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.tools.conformance.assignors import AS_GOOD, lines_of, main, verdict_on

from .test_golden import CASES


def line_where(assignor: str, *, deterministic: bool) -> dict[str, Any]:
    return next(
        line
        for line in lines_of(CASES)
        if line["assignor"] == assignor and line["deterministic"] is deterministic and sum(map(len, line["assignment"].values())) > 1
    )


def written(path: Path, *lines: dict[str, Any]) -> str:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return str(path)


def with_owners_swapped(line: dict[str, Any]) -> dict[str, Any]:
    one, other, *rest = line["assignment"]
    assigned = line["assignment"]
    return {
        **line,
        "assignment": {one: assigned[other], other: assigned[one], **{member_id: assigned[member_id] for member_id in rest}},
    }


def test_equal_lines_are_counted_by_assignor_and_give_exit_code_0(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = line_where("range", deterministic=True)
    assert main([written(tmp_path / "one.jsonl", line), written(tmp_path / "two.jsonl", line)]) == 0
    assert capsys.readouterr().out == "range: 2 of 2 equal\n"


def test_a_difference_is_named_and_gives_exit_code_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = line_where("range", deterministic=True)
    assert main([written(tmp_path / "cases.jsonl", line, with_owners_swapped(line))]) == 1
    output = capsys.readouterr().out
    assert output.startswith(f"range: 1 of 2 equal, 1 different; first: {line['case']} round {line['round']}: ")
    assert "expected [" in output


def test_a_wrong_figure_of_an_equal_assignment_is_a_difference() -> None:
    line = line_where("sticky", deterministic=True)
    assert verdict_on({**line, "moved": line["moved"] + 1}).startswith("moved of an equal assignment: expected ")


def test_where_kafka_itself_varies_another_valid_answer_is_as_good() -> None:
    line = line_where("uniform", deterministic=False)
    assert verdict_on(with_owners_swapped(line)) == AS_GOOD


def test_where_kafka_itself_varies_figures_outside_its_range_are_a_difference() -> None:
    line = with_owners_swapped(line_where("uniform", deterministic=False))
    assert verdict_on({**line, "variants": {**line["variants"], "max-min": [7, 9]}}).startswith("max-min: expected 7 to 9, got ")


def test_no_file_is_a_usage_error() -> None:
    assert main([]) == 2
