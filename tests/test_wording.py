"""Commands in sentences, as a shell reads them."""

from __future__ import annotations

import shlex
import shutil
import subprocess

import pytest

from groupcoord_spark.wording import command_line, command_lines, shell_word

NAMES = [
    "a",
    "",
    "a b",
    "it's",
    '"$(touch x)"',
    "`id`",
    "--warehouse=/other",
    "a\x1b[31m",
    "two\nlines",
    "\x9b2J",
    "\u202er\\'",
    "組🎉",
    "\t",
]


@pytest.mark.parametrize("name", NAMES)
def test_a_shell_reads_the_word_back_and_a_terminal_acts_on_none(name: str) -> None:
    word = shell_word(name)
    assert word.isprintable()
    if name.isprintable():
        assert shlex.split(word) == [name]
    if (bash := shutil.which("bash")) is not None:
        printed = subprocess.run([bash, "-c", f"printf %s {word}"], capture_output=True, check=True, env={"LC_ALL": "C.UTF-8"}).stdout
        assert printed.decode() == name


def test_no_command_line_holds_nul_so_a_pattern_stands_for_it() -> None:
    assert shell_word("a\0b") == "$'a?b'"


def test_a_command_has_the_warehouse_and_the_cluster() -> None:
    assert (
        command_line("why", "--group", "a b", warehouse="/w x", cluster="c")
        == "groupcoord why --group 'a b' --warehouse '/w x' --cluster c"
    )
    assert command_line("nightly", "INPUT", warehouse="w") == "groupcoord nightly INPUT --warehouse w"


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
@pytest.mark.parametrize("name", NAMES)
def test_a_shell_reads_the_lines_of_a_command_as_the_command(name: str) -> None:
    statement = f"from rewinds where group_id = '{name}' and rewound_at between '2026-01-01T00:00:00.000Z' and '2026-01-02T00:00:00.000Z'"
    command = command_line("sql", statement, "--run", "20261129T023413Z-6f0f1d95", warehouse="/a/warehouse", cluster=name)
    lines = list(command_lines(command, 60))
    assert len(lines) > 3 and max(map(len, lines[2:])) <= 60
    read, broken = (
        subprocess.run(["bash", "-c", f"printf '%s\\0' {text}"], capture_output=True, check=True, env={"LC_ALL": "C.UTF-8"}).stdout
        for text in (command, "\n".join(lines))
    )
    assert broken.replace(b"\n", b" ") == read.replace(b"\n", b" ")
    assert f"'{name}'".encode() in broken
