"""Lines about stages, on stderr."""

from __future__ import annotations

import io

import pytest

from groupcoord_spark.cli.progress import StageLines, stage_line


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_stage_is_one_line_with_rows_megabytes_seconds_and_rate():
    line = stage_line("read", 12.5, 10_000_000, 1_650_000_000)
    assert line.split() == ["read", "10,000,000", "rows", "1,650.0", "MB", "12.5", "s", "800,000", "rows/s"]


def test_what_is_not_known_is_left_out():
    assert stage_line("commit", 0.25, None, None).split() == ["commit", "0.2", "s"]
    assert stage_line("commit", 0.0, 0, None).split() == ["commit", "0", "rows", "0.0", "s"]


def test_plain_lines_appear_when_a_stage_ends():
    said = io.StringIO()
    with StageLines(stream=said) as progress:
        progress.begin("read")
        assert said.getvalue() == ""
        progress.end(rows=5)
        progress.begin("commit")
    assert [line.split()[0] for line in said.getvalue().splitlines()] == ["read"]


def test_a_stage_that_follows_ends_the_one_before():
    said = io.StringIO()
    with StageLines(stream=said) as progress:
        progress.begin("read")
        progress.begin("commit")
        progress.end()
    assert [line.split()[0] for line in said.getvalue().splitlines()] == ["read", "commit"]


def test_quiet_says_nothing():
    said = Terminal()
    with StageLines(quiet=True, stream=said) as progress:
        progress.begin("read")
        progress.end(rows=5)
    assert said.getvalue() == ""


def test_on_a_terminal_the_stage_is_live_and_its_line_stays():
    said = Terminal()
    with StageLines(stream=said) as progress:
        progress.begin("read")
        progress.end(rows=5)
    assert "read" in said.getvalue().splitlines()[-1] and "5 rows" in said.getvalue()


def test_an_error_stops_the_live_line():
    said = Terminal()
    with pytest.raises(RuntimeError), StageLines(stream=said) as progress:
        progress.begin("read")
        raise RuntimeError
    assert "rows" not in said.getvalue()
