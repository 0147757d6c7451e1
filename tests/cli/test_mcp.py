"""``groupcoord mcp``, asked by the client of the SDK over stdio."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from groupcoord_spark.cli.mcp import server_of
from tests.cli.warehouse import groupcoord
from tests.warehouse.nights import AS_OF_MS, DAY_MS, group, night, offset

if TYPE_CHECKING:
    from mcp import StdioServerParameters

pytestmark = pytest.mark.process

Results = list[Any]


def asked(server: Any, *calls: tuple[str, dict[str, Any]]) -> Results:
    """The results of some calls of tools, one after another over one connection."""
    from mcp import Client  # a second and more of CPU, which each process of pytest would spend to collect the tests

    async def ask() -> Results:
        async with Client(server) as client:
            return [await client.call_tool(name, arguments) for name, arguments in calls]

    return asyncio.run(ask())


def over_stdio(place: str) -> StdioServerParameters:
    from mcp import StdioServerParameters

    root = str(Path(__file__).parents[2])
    words = ["-m", "groupcoord_spark", "mcp", "--warehouse", place, "--cluster", "prod"]
    return StdioServerParameters(command=sys.executable, args=words, env={"PYTHONPATH": root, "PATH": "/usr/bin:/bin"})


async def answer_of_this_process(words: Sequence[str], most_rows: int, seconds: float) -> dict[str, Any]:
    """What a tool answers, without a process for its command."""
    done = groupcoord(*words)
    assert done.exit_code == 0, done.stderr
    return {"rows": [json.loads(line) for line in done.stdout.splitlines()], "is_cut": False, "remarks": done.stderr}


def test_an_agent_gets_what_the_commands_print(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two tools are asked of a server in a process of its own, all others of a server in this process."""
    results = asked(
        over_stdio(place),
        ("list_groups", {"state": "Stable"}),
        ("sql", {"statement": "SELECT group_id FROM groups WHERE member_count = 2 ORDER BY 1 -- of two members"}),
    )
    monkeypatch.setattr("groupcoord_spark.cli.mcp._answer", answer_of_this_process)
    results += asked(
        server_of([f"--warehouse={place}", "--cluster=prod"], 200, 60),
        ("describe_group", {"group": "new", "view": "members"}),
        ("diff", {"only": "gone"}),
        ("morning", {}),
        ("expiring", {}),
        ("lag", {"group": "it's"}),
        ("why", {"group": "early"}),
    )
    assert not any(result.is_error for result in results), [result.content for result in results if result.is_error]
    groups, of_sql, members, gone, news, expiring, lag, why = (result.structured_content for result in results)
    assert [row["group"] for row in groups["rows"]] == ["plain", "queue", "workers"] and not groups["is_cut"]
    assert {row["member"] if "member" in row else row["consumer_id"] for row in members["rows"]} == {"m-old", "m-new"}
    assert [row["group"] for row in gone["rows"]] == ["early"] and "1 group gone" in gone["remarks"]
    assert [row["what"] for row in news["rows"]] == ["group_vanished"]
    assert of_sql["rows"] == [{"group_id": "new"}, {"group_id": "plain"}]
    assert (expiring["rows"], lag["rows"]) == ([], [])
    assert "was there in the night of 2026-01-01" in why["rows"][-1]["what"]


@pytest.mark.parametrize(
    "statement",
    [
        "FROM read_csv('/etc/passwd')",
        "SELECT * FROM '/etc/passwd'",
        "FROM query('FROM read_text(''/etc/passwd'')')",
        "COPY groups TO '{place}/stolen.csv'",
        "ATTACH '{place}/new.db'",
        "SET enable_external_access = true",
        "CREATE TABLE mine AS SELECT 1",
        "SELECT 1; COPY groups TO '{place}/stolen.csv'",
        "INSTALL httpfs",
    ],
)
def test_statements_see_no_files_and_change_nothing(place: str, tmp_path: Path, statement: str) -> None:
    """Asked in this process too, as `groupcoord sql --sandbox` does: each call of a tool would be a process."""
    result = groupcoord("sql", "--sandbox", "--warehouse", place, statement.format(place=tmp_path))
    assert result.exit_code == 2 and "root:" not in result.output
    assert list(tmp_path.iterdir()) == []


def test_errors_are_the_sentences_of_the_commands(place: str) -> None:
    results = asked(
        server_of([f"--warehouse={place}"], 200, 60),
        ("why", {"group": "--help"}),
        ("sql", {"statement": "FROM read_csv('/etc/passwd')"}),
        ("describe_group", {"group": "plian"}),
    )
    assert all(result.is_error for result in results)
    no_group, no_file, misspelled = (result.content[0].text for result in results)
    assert "Group '--help' is in no record of cluster 'prod'" in no_group
    assert "Cannot access file" in no_file and "root:" not in no_file
    assert "Did you mean 'plain'?" in misspelled


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    place = tmp_path_factory.mktemp("many")
    rows = {"groups": [group(f"g{number:04}") for number in range(500)], "committed_offsets": [offset("g0001", "t", 0, 5)]}
    night(place, "prod", rows, as_of_ms=AS_OF_MS + DAY_MS)
    yield str(place)


def test_rows_and_time_are_bounded_and_a_cut_answer_says_so(many: str) -> None:
    groups, billions = asked(
        server_of([f"--warehouse={many}"], 10, 300),
        ("list_groups", {}),
        ("sql", {"statement": "SELECT a.group_id FROM groups a, groups b, groups c, groups d"}),
    )
    for answer in (groups.structured_content, billions.structured_content):
        assert len(answer["rows"]) == 10 and answer["is_cut"]
    endless = "SELECT MAX(hash(a.group_id || b.group_id || c.group_id)) FROM groups a, groups b, groups c, groups d"
    (ended,) = asked(server_of([f"--warehouse={many}"], 10, 3), ("sql", {"statement": endless}))
    assert ended.is_error and "took longer than 3 seconds" in ended.content[0].text


def test_tools_say_that_they_only_read(place: str) -> None:
    from mcp import Client

    async def tools() -> Any:
        async with Client(server_of([f"--warehouse={place}"], 10, 20)) as client:
            return (await client.list_tools()).tools

    listed = asyncio.run(tools())
    assert {tool.name for tool in listed} == {
        *("morning", "list_groups", "describe_group", "why", "diff", "lag", "expiring", "doctor", "sql")
    }
    assert all(tool.annotations.read_only_hint and tool.description for tool in listed)
