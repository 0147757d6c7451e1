"""Tables on a terminal of 80 columns."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

from groupcoord_spark.cli.render import cut_in_the_middle, fitting_lines
from tests.warehouse.nights import commit, group, night

ESCAPES = re.compile(r"\x1b\[[0-9;]*m")


def on_terminal(*words: str, **environment: str) -> str:
    """What the command prints on a terminal of 80 columns."""
    ours, theirs = pty.openpty()
    settings = {**os.environ, "COLUMNS": "80", "LINES": "24", **environment}
    process = subprocess.Popen([sys.executable, "-m", "groupcoord_spark", *words], stdout=theirs, stderr=subprocess.DEVNULL, env=settings)
    os.close(theirs)
    parts = []
    try:
        while part := os.read(ours, 65536):
            parts.append(part)
    except OSError:  # the other end of a terminal is closed
        pass
    os.close(ours)
    assert process.wait() == 0
    return b"".join(parts).decode().replace("\r\n", "\n")


def test_titles_are_cut_before_short_cells_and_times_lose_their_last_digits() -> None:
    """At 80 columns `checkout-us` was `che…-us` so that LOG-END-OFFSET was whole, and a time was `2026-11-…39.577Z`."""
    titles = ["GROUP", "CURRENT-OFFSET", "LOG-END-OFFSET"]
    assert fitting_lines(titles, [["checkout-us", "12", "-"]], 30) == [["GROUP       CURR…SET LOG-…FSET"], ["checkout-us 12       -"]]
    time = "2026-11-21T03:21:13.583Z"
    for width, shown in ((24, time), (22, "2026-11-21T03:21:13Z"), (19, "2026-11-21T03:21Z"), (12, "2026-11-21")):
        assert fitting_lines(["AT", "N"], [[time, "1"], ["-", "2"]], width + 2)[1] == [f"{shown.ljust(min(width, 24))} 1"]


def test_texts_of_several_words_go_on_below() -> None:
    found = fitting_lines(["RECORDS", "WHAT"], [["2@207 2@208 2@224", "one two three four five six seven"]], 44)
    assert found[1] == ["2@207 2@208   one two three four five six", "2@224         seven"]


def test_long_ids_are_cut_in_the_middle() -> None:
    assert cut_in_the_middle("consumer-1-0990c170", 9) == "cons…c170"
    assert cut_in_the_middle("short", 5) == "short"
    assert fitting_lines(["ID", "N"], [["a" * 40, "1"]], 20) == [["ID                 N"], ["aaaaaaaaa…aaaaaaaa 1"]]


def test_sentences_go_on_below_their_column() -> None:
    found = fitting_lines(["ID", "WHAT"], [["a", "one two three four five six seven eight nine"]], 34)
    assert found == [["ID WHAT"], ["a  one two three four five six", "   seven eight nine"]]


def test_titles_are_cut_only_where_cells_are_not_enough() -> None:
    assert fitting_lines(["LONG-TITLE", "B"], [["x" * 30, "1"]], 12) == [["LONG-TITLE B"], ["xxxxx…xxxx 1"]]
    assert fitting_lines(["LONG-TITLE", "B"], [["x" * 30, "1"]], 9) == [["LON…TLE B"], ["xxx…xxx 1"]]


@pytest.mark.parametrize(
    "words", [("describe", "--all-groups"), ("describe", "--all-groups", "--members", "--verbose"), ("list", "--state")]
)
def test_tables_fit_eighty_columns(place: str, words: tuple[str, ...]) -> None:
    shown = on_terminal(*words, "--warehouse", place)
    assert max(map(len, shown.splitlines())) <= 80
    wide = on_terminal(*words, "--wide", "--warehouse", place)
    assert "…" not in wide and len(wide) > len(shown)


def test_what_is_wrong_is_red_unless_no_color_is_set(tmp_path: Path) -> None:
    night(tmp_path, "prod", {"groups": [group("g")], "offset_commits": [commit(1, committed_offset=9), commit(2, committed_offset=3)]})
    words = ("timeline", "--group", "g", "--warehouse", str(tmp_path))
    shown = on_terminal(*words)
    assert re.search(r"\x1b\[31m.* rewind ", shown)
    assert not ESCAPES.search(on_terminal(*words, NO_COLOR="1"))
    assert max(len(ESCAPES.sub("", line)) for line in shown.splitlines()) <= 80


def test_rows_with_more_columns_than_fit_are_blocks(tmp_path: Path) -> None:
    """Sixteen columns of a view were cut to two letters each, and still broke the line."""
    night(tmp_path, "prod", {"offset_commits": [commit(1, committed_offset=9), commit(2, committed_offset=3)]})
    words = ("sql", "--warehouse", str(tmp_path))
    shown = on_terminal(*words, "SELECT * FROM rewinds").splitlines()
    assert "KIND                   reset" in shown and "BACK_BY                6" in shown
    assert on_terminal(*words, "SELECT group_id, kind FROM rewinds").splitlines() == ["GROUP_ID KIND", "g        reset"]
