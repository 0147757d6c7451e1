"""Lines about stages, on stderr."""

from __future__ import annotations

import io
import threading

import pytest

from groupcoord_spark.cli import progress as progress_module
from groupcoord_spark.cli.progress import StageLines, live_line
from groupcoord_spark.pipeline.progress import Stage
from groupcoord_spark.spark.job_progress import Expected, JobProgress


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_stage_is_one_line_with_rows_megabytes_seconds_and_rate():
    line = str(Stage("read", 12.5, 10_000_000, 1_650_000_000))
    assert line.split() == ["read", "10,000,000", "rows", "1,650.0", "MB", "12.5", "s", "800,000", "rows/s"]


def test_what_is_not_known_is_left_out():
    assert str(Stage("commit", 0.25, None, None)).split() == ["commit", "0.2", "s"]
    assert str(Stage("commit", 0.0, 0, None)).split() == ["commit", "0", "rows", "0.0", "s"]
    assert str(Stage("read", 0.0, 1, None)).split() == ["read", "1", "row", "0.0", "s"]


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


def test_a_rate_is_left_out_where_it_would_say_how_long_spark_takes_to_start_a_job():
    assert "rows/s" not in str(Stage("read, replay and write", 2.7, 173, 100_000))
    assert "rows/s" not in str(Stage("commit", 0.1, 2_145_825, None))


def test_columns_are_aligned_and_fit_80_characters_whatever_is_known():
    lines = [
        str(Stage("plan", 0.1, None, 357_941_752)),
        str(Stage("start Spark", 2.8, None, None)),
        str(Stage("read, replay and write", 1234.5, 10_000_000, 99_999_900_000)),
        str(Stage("commit", 0.2, 2_145_825, None)),
    ]
    assert len({line.index(" s", 56) for line in lines}) == 1
    assert max(map(len, lines)) <= 80


JOB_PROGRESS = JobProgress(bytes_read=143_000_000, tasks_done=2, tasks=11, expected=Expected(358_000_000, 2, 9))


def test_live_line_tells_elapsed_time_megabytes_tasks_and_what_is_left():
    line = live_line("read, replay and write", 12.4, JOB_PROGRESS, 17.2, 80)
    assert line == "read, replay and write  0:12  143 of 358 MB  about 0:17 left  2 of 11 tasks"


@pytest.mark.parametrize("width", range(10, 80, 7))
def test_live_line_of_a_narrow_window_drops_what_does_not_fit(width):
    line = live_line("read, replay and write", 12.4, JOB_PROGRESS, 17.2, width)
    assert line.startswith("read, replay and write  0:12")
    assert len(line) <= max(width, len("read, replay and write  0:12"))


def test_nothing_is_estimated_where_the_work_is_not_known_beforehand():
    job_progress = JobProgress(bytes_read=0, tasks_done=3, tasks=8, expected=None)
    assert job_progress.share == 0.0
    assert live_line("read", 3661, job_progress, None, 80) == "read  1:01:01  3 of 8 tasks"


def test_share_of_the_work_rises_from_nothing_to_all():
    expected = Expected(bytes=100, reading_tasks=2, later_tasks=4)
    done = [JobProgress(bytes_read, tasks, 6, expected) for bytes_read, tasks in ((0, 0), (50, 1), (100, 2), (100, 6))]
    shares = [each.share for each in done]
    assert shares == sorted(shares)
    assert (shares[0], shares[-1]) == (0.0, 1.0)


def test_progress_of_a_job_is_asked_for_on_a_terminal_alone_and_what_goes_wrong_there_is_no_error(monkeypatch):
    monkeypatch.setattr(progress_module, "SECONDS_BETWEEN_LOOKS", 0.001)
    asked = threading.Event()

    def job_progress():
        asked.set()
        raise ConnectionRefusedError

    for stream, quiet in ((io.StringIO(), False), (Terminal(), True)):
        with StageLines(stream=stream, quiet=quiet) as progress:
            progress.begin("read")
            progress.follow(job_progress)
            assert not asked.wait(0.05)
    terminal = Terminal()
    with StageLines(stream=terminal) as progress:
        progress.begin("read")
        progress.follow(job_progress)
        assert asked.wait(30)
    assert "Traceback" not in terminal.getvalue()
