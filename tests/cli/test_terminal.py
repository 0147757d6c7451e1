"""Tables on a terminal of 80 columns."""

from __future__ import annotations

import os
import pty
import re
import subprocess
from pathlib import Path

import pytest
from rich.cells import cell_len

from groupcoord_spark.cli.terminal import cut_in_the_middle, fitted_table
from tests.cli.processes import in_turn, of_each
from tests.warehouse.nights import commit, group, night

pytestmark = pytest.mark.process

ESCAPES = re.compile(r"\x1b\[[0-9;]*m")


def on_terminal(*commands: tuple[str, ...], **environment: str) -> list[str]:
    """Return what each of the commands prints on a terminal of 80 columns."""
    ours, theirs = pty.openpty()
    settings = {**os.environ, "COLUMNS": "80", "LINES": "24", **environment}
    process = subprocess.Popen(in_turn(commands), stdout=theirs, stderr=subprocess.DEVNULL, env=settings)
    os.close(theirs)
    parts = []
    try:
        while part := os.read(ours, 65536):
            parts.append(part)
    except OSError:  # the other end of a terminal is closed
        pass
    os.close(ours)
    assert process.wait() == 0
    printed = of_each(b"".join(parts).decode().replace("\r\n", "\n"))
    assert [code for _, code in printed] == [0] * len(commands)
    return [text for text, _ in printed]


def fitted(titles: list[str], rows: list[list[str]], limit: int) -> list[str]:
    """Return the lines of a table."""
    return [line for row in fitted_table(titles, rows, limit).rows for line in row]


def test_titles_go_on_below_before_cells_are_cut() -> None:
    """At 80 columns `checkout-us` was `che…-us` so that LOG-END-OFFSET was whole."""
    lines = ["GROUP       CURRENT- LOG-END-", "            OFFSET   OFFSET", "checkout-us 12       -"]
    assert fitted(["GROUP", "CURRENT-OFFSET", "LOG-END-OFFSET"], [["checkout-us", "12", "-"]], 30) == lines


@pytest.mark.parametrize(
    ("width", "shown"),
    [(24, "2026-11-21T03:21:13.583Z"), (22, "2026-11-21T03:21:13Z"), (19, "2026-11-21T03:21Z")],
)
def test_times_lose_their_last_digits(width: int, shown: str) -> None:
    lines = fitted(["AT", "N"], [["2026-11-21T03:21:13.583Z", "1"], ["-", "2"]], width + 2)
    assert lines[1] == f"{shown.ljust(width)} 1"


def test_texts_of_several_words_go_on_below() -> None:
    lines = fitted(["RECORDS", "WHAT"], [["2@207 2@208 2@224", "one two three four five six seven eight"]], 48)
    assert lines[1:] == ["2@207 2@208 2@224 one two three four five six", "                  seven eight"]


def test_long_ids_are_cut_in_the_middle() -> None:
    assert cut_in_the_middle("consumer-1-0990c170", 9) == "cons…c170"
    assert cut_in_the_middle("short", 5) == "short"
    assert fitted(["ID", "N"], [["a" * 40, "1"]], 20) == ["ID                 N", "aaaaaaaaa…aaaaaaaa 1"]


def test_ids_are_cut_so_that_they_stay_different() -> None:
    """Both begin and end equally: at 16 cells they would be one."""
    ids = [f"{'a' * 30}{middle}{'z' * 14}" for middle in "bc"]
    lines = fitted(["GROUP", "STATE", "MEMBERS"], [[each, "Stable", "17"] for each in ids], 60)
    assert [line.split()[0] for line in lines[1:]] == [cut_in_the_middle(each, len(lines[1].split()[0])) for each in ids]
    assert lines[1].split()[0] != lines[2].split()[0] and lines[1].split()[1:] == ["Stable", "17"]


def test_columns_that_do_not_fit_go_to_a_second_line() -> None:
    titles = ["GROUP", "TOPIC", "PARTITION", "LAG", "CONSUMER-ID", "HOST"]
    assert fitted(titles, [["g" * 40, "orders", "11", "5", "c" * 60, "/10.0.0.1"]], 50) == [
        "GROUP                         TOPIC  PARTITION LAG",
        "  CONSUMER-ID                            HOST",
        "gggggggggggggg…gggggggggggggg orders 11        5",
        "  ccccccccccccccccccc…cccccccccccccccccc /10.0.0.1",
    ]


def test_a_group_id_that_is_wider_than_the_terminal_is_cut() -> None:
    assert fitted(["GROUP"], [["g" * 50]], 20) == ["GROUP", "gggggggggg…ggggggggg"]


@pytest.mark.parametrize("limit", [20, 40, 60, 80])
def test_every_column_is_shown_within_the_width(limit: int) -> None:
    titles = ["GROUP", "TYPE", "STATE", "NEXT-EXPIRY", "STAYS-BECAUSE"]
    rows = [["g" * 100, "Consumer", "Stable", "2026-11-21T03:21:13.583Z", "it has members"]]
    lines = fitted(titles, rows, limit)
    assert max(map(cell_len, lines)) <= limit
    words = " ".join(lines).split()
    assert {"Consumer", "Stable", "members"} <= set(words) and any(word.startswith("2026-11-21T03:21") for word in words)


def test_an_emoji_takes_two_cells() -> None:
    # The sample's own group ünïcode-组-🎉 broke the line at 80 columns.
    lines = fitted(["GROUP", "N"], [["组🎉", "1"], ["abc", "2"]], 80)
    assert lines == ["GROUP N", "组🎉  1", "abc   2"]
    assert cut_in_the_middle("组" * 10, 9) == "组组…组组"


def test_marks_stay_on_their_letter_where_an_id_is_cut() -> None:
    assert cut_in_the_middle("abcdefghe\u0301", 3) == "a…e\u0301"
    assert cut_in_the_middle("abcdefe\u0301g", 3) == "a…g"
    for width in range(3, 12):
        assert cell_len(cut_in_the_middle("1\ufe0f\u20e3🏳️\u200d🌈e\u0301" * 4, width)) <= width


def test_sentences_go_on_below_their_column() -> None:
    lines = fitted(["ID", "WHAT"], [["a", "one two three four five six seven eight nine"]], 34)
    assert lines == ["ID WHAT", "a  one two three four five six", "   seven eight nine"]


def test_tables_fit_eighty_columns(place: str) -> None:
    commands = ("describe", "--all-groups"), ("describe", "--all-groups", "--members", "--verbose"), ("list", "--state")
    printed = on_terminal(*((*words, *wide, "--warehouse", place) for words in commands for wide in ((), ("--wide",))))
    for shown, wide in zip(printed[::2], printed[1::2], strict=True):
        assert max(map(cell_len, shown.splitlines())) <= 80
        assert "…" not in wide and len(wide) > len(shown)


def test_what_is_wrong_is_red_unless_no_color_is_set(tmp_path: Path) -> None:
    night(tmp_path, "prod", {"groups": [group("g")], "offset_commits": [commit(1, committed_offset=9), commit(2, committed_offset=3)]})
    words = ("timeline", "--group", "g", "--warehouse", str(tmp_path))
    (shown,) = on_terminal(words)
    assert re.search(r"\x1b\[31m.* rewind ", shown)
    assert not ESCAPES.search(*on_terminal(words, NO_COLOR="1"))
    assert max(len(ESCAPES.sub("", line)) for line in shown.splitlines()) <= 80


def test_rows_with_more_columns_than_fit_are_blocks(tmp_path: Path) -> None:
    """Sixteen columns of a view were cut to two letters each, and still broke the line."""
    night(tmp_path, "prod", {"offset_commits": [commit(1, committed_offset=9), commit(2, committed_offset=3)]})
    words = ("sql", "--warehouse", str(tmp_path))
    queries = "SELECT * FROM rewinds", "SELECT group_id, kind FROM rewinds"
    blocks, table = (shown.splitlines() for shown in on_terminal(*((*words, query) for query in queries)))
    assert "KIND                   reset" in blocks and "BACK_BY                6" in blocks
    assert table == ["GROUP_ID KIND", "g        reset"]
