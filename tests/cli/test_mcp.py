"""``groupcoord mcp``, asked by the client of the SDK over stdio."""

from __future__ import annotations

import asyncio
import io
import json
import sys
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from groupcoord_spark.cli.mcp import Bounds, Call, ToolAnswer, _Printed, run_call, server_of
from groupcoord_spark.cli.options import Common
from groupcoord_spark.errors import GroupcoordError
from tests.cli.warehouse import groupcoord
from tests.warehouse.nights import AS_OF_MS, DAY_MS, group, night, offset

if TYPE_CHECKING:
    from mcp import StdioServerParameters

pytestmark = pytest.mark.process

Results = list[Any]


def asked(server: Any, *calls: tuple[str, dict[str, Any]]) -> Results:
    """Return the results of some calls of tools, one after another over one connection."""
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


async def answer_of_this_process(call: Call, common: Common, bounds: Bounds) -> ToolAnswer:
    """Return what a tool answers, without a process for its command."""
    request = json.dumps({"call": call, "place": {"warehouse": common.warehouse, "cluster": common.cluster}, "bounds": asdict(bounds)})
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.setattr("sys.stdin", io.StringIO(request))
        run_call()
    rows = [json.loads(line, parse_constant=no_constant) for line in out.getvalue().splitlines()]
    if rows and isinstance(rows[-1], str):
        raise GroupcoordError(rows[-1])
    return {"rows": rows, "is_cut": False, "cut": "", "remarks": err.getvalue()}


def no_constant(name: str) -> None:
    raise AssertionError(f"{name} is not JSON")


@pytest.fixture
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("groupcoord_spark.cli.mcp.answer_of", answer_of_this_process)


def refusals(place: str, *calls: tuple[str, dict[str, Any]]) -> list[str]:
    results = asked(server_of(Common(place), Bounds()), *calls)
    assert all(result.is_error for result in results), calls
    return [result.content[0].text for result in results]


def test_an_agent_gets_what_the_commands_print(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two tools are asked of a server in a process of its own, all others of a server in this process."""
    results = asked(
        over_stdio(place),
        ("list_groups", {"state": "Stable"}),
        ("sql", {"statement": "SELECT group_id FROM groups WHERE member_count = 2 ORDER BY 1 -- of two members"}),
    )
    monkeypatch.setattr("groupcoord_spark.cli.mcp.answer_of", answer_of_this_process)
    results += asked(
        server_of(Common(place, "prod"), Bounds()),
        ("describe_group", {"group": "new", "view": "members"}),
        ("diff", {"only": "gone"}),
        ("morning", {}),
        ("expiring", {}),
        ("lag", {"group": "plain"}),
        ("why", {"group": "early"}),
    )
    assert not any(result.is_error for result in results), [result.content for result in results if result.is_error]
    groups, of_sql, members, gone, news, expiring, lag, why = (result.structured_content for result in results)
    assert [row["group"] for row in groups["rows"]] == ["plain", "queue", "workers"] and not groups["is_cut"]
    assert {row["member"] if "member" in row else row["consumer_id"] for row in members["rows"]} == {"m-old", "m-new"}
    assert [row["group"] for row in gone["rows"]] == ["early"] and "1 group gone" in gone["remarks"]
    assert [row["what"] for row in news["rows"]] == ["group_vanished"]
    assert of_sql["rows"] == [{"group_id": "new"}, {"group_id": "plain"}]
    assert expiring["rows"] == [] and {row["group_id"] for row in lag["rows"]} == {"plain"}
    assert "was there in the run of 2026-01-01" in why["rows"][-1]["what"]


def test_a_tool_answers_for_the_run_that_it_is_asked_about(place: str, in_this_process: None) -> None:
    server = server_of(Common(place, "prod"), Bounds())
    calls = [("list_groups", {"at": "-1"}), ("sql", {"statement": "SELECT group_id FROM groups", "at": "2026-01-01"})]
    calls += [
        ("morning", {"at": "-1"}),
        ("diff", {"from_time": "-1"}),
        ("lag", {"at": "-1"}),
        ("describe_group", {"group": "early", "at": "-1"}),
    ]
    of_list, of_sql, news, changes, lag, described = asked(server, *calls)
    assert of_list.structured_content["rows"] == [{"group": "early", "type": "Classic", "state": "Empty"}]
    assert of_sql.structured_content["rows"] == [{"group_id": "early"}]
    assert "in the first run" in news.structured_content["remarks"]
    assert "From the run of 2026-01-01" in changes.structured_content["remarks"]
    assert lag.structured_content["rows"] == [] and not described.is_error


@pytest.mark.parametrize(
    ("tool", "arguments", "sentence"),
    [
        ("list_groups", {"state": "--warehouse=/other"}, "'--warehouse=/other' is not one of Empty, Stable"),
        ("list_groups", {"group_type": "--cluster=other"}, "'--cluster=other' is not one of Classic"),
        ("describe_group", {"group": "--all-groups"}, "Group '--all-groups' does not exist"),
        ("describe_group", {"group": "plian"}, "Did you mean 'plain'?"),
        ("why", {"group": "--help"}, "Group '--help' is in no record of cluster 'prod'"),
        ("why", {"group": "null"}, "Group 'null' is in no record of cluster 'prod'"),
        ("why", {"group": "plain", "topic": "--warehouse=/other"}, "no record of group 'plain' in cluster 'prod'"),
        ("diff", {"only": "--warehouse=/other"}, "'--warehouse=/other' is not one of born"),
        ("diff", {"from_time": "--warehouse=/other"}, "'--warehouse=/other' is not a time"),
        ("lag", {"group": "it's"}, 'Group "it\'s" does not exist'),
        ("lag", {"group": "plian"}, "Did you mean 'plain'?"),
        ("sql", {"statement": "SELEC 1"}, 'Parser Error: syntax error at or near "SELEC"\n\nLINE 1: SELEC 1'),
        ("sql", {"statement": "--output=csv"}, "The statement is empty."),
        ("sql", {"statement": "FROM read_csv('/etc/passwd')"}, "the table function 'read_csv' is refused"),
        ("sql", {"statement": "WITH a AS (COPY groups TO 'x') FROM a"}, "COPY is refused"),
        ("diff", {"from": "-3"}, "There is no argument 'from'. The tool diff takes from_time, to_time, only."),
        ("morning", {"warehouse": "/other"}, "There is no argument 'warehouse'. The tool morning takes at."),
        ("why", {}, "The argument 'group' is missing. The tool why takes group, topic, partition."),
        ("why", {"group": 3}, "The argument 'group' is not valid: Input should be a valid string."),
        ("why", {"group": ["plain"]}, "The argument 'group' is not valid"),
        (
            "why",
            {"group": "plain", "topic": "orders", "partition": "0"},
            "The argument 'partition' is not valid: Input should be a valid integer.",
        ),
        ("describe_group", {"group": "plain", "view": "verbose"}, "The argument 'view' is not valid"),
        ("why", {"group": "\ud800"}, "half of a surrogate pair"),
        ("no_tool", {}, "There is no tool 'no_tool'. The tools are morning, list_groups"),
    ],
)
def test_an_argument_is_a_value_and_never_an_option(
    place: str, in_this_process: None, tool: str, arguments: dict[str, Any], sentence: str
) -> None:
    (refusal,) = refusals(place, (tool, arguments))
    assert sentence in refusal and "root:" not in refusal


def test_an_error_of_a_process_is_the_whole_sentence(place: str) -> None:
    unknown, misread = refusals(place, ("lag", {"group": "plian"}), ("sql", {"statement": "SELEC 1"}))
    assert "Did you mean 'plain'?" in unknown
    assert misread.startswith('Parser Error: syntax error at or near "SELEC"')


def test_lag_has_share_groups(tmp_path: Path, in_this_process: None) -> None:
    state = {"group_id": "queue", "topic": "jobs", "topic_id": "a" * 22, "partition": 0, "leader_epoch": 0, "start_offset": 4}
    state |= {"delivery_complete_count": 1, "state_epoch": 0, "snapshot_epoch": 0, "state_partition": 0, "record_offset": 0}
    end = {"topic": "jobs", "partition": 0, "end_offset": 12, "sampled_at_ms": AS_OF_MS, "source": "sample", "run_id": "r"}
    night(tmp_path / "w", "prod", {"groups": [group("queue", group_type="share")], "share_offsets": [state], "log_ends": [end]})
    (answer,) = asked(server_of(Common(str(tmp_path / "w")), Bounds()), ("lag", {"group": "queue"}))
    assert not answer.is_error, answer.content
    assert [(row["topic"], row["lag"]) for row in answer.structured_content["rows"]] == [("jobs", 7)]


def test_a_server_over_no_warehouse_does_not_start(tmp_path: Path) -> None:
    refused = groupcoord("mcp", "--warehouse", str(tmp_path / "none"))
    assert refused.exit_code == 1 and "is not a warehouse: nothing is there." in refused.stderr


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    place = tmp_path_factory.mktemp("many")
    rows = {"groups": [group(f"g{number:04}") for number in range(500)], "committed_offsets": [offset("g0001", "t", 0, 5)]}
    night(place, "prod", rows, as_of_ms=AS_OF_MS + DAY_MS)
    yield str(place)


def test_rows_and_time_are_bounded_and_a_cut_answer_says_so(many: str) -> None:
    groups, billions = asked(
        server_of(Common(many), Bounds(rows=10, seconds=300)),
        ("list_groups", {}),
        ("sql", {"statement": "SELECT a.group_id FROM groups a, groups b, groups c, groups d"}),
    )
    for answer in (groups.structured_content, billions.structured_content):
        assert len(answer["rows"]) == 10 and answer["is_cut"]
    assert groups.structured_content["cut"].startswith("10 of 500 rows are here")
    assert billions.structured_content["cut"].startswith("10 of at least 11 rows are here")
    endless = "SELECT MAX(hash(a.group_id || b.group_id || c.group_id)) FROM groups a, groups b, groups c, groups d"
    (ended,) = asked(server_of(Common(many), Bounds(10, seconds=3)), ("sql", {"statement": endless}))
    assert ended.is_error and "took longer than 3 seconds" in ended.content[0].text


def test_bytes_are_bounded_before_an_answer_is_made(many: str) -> None:
    statement = "SELECT repeat('x', 3000000) AS long, repeat(group_id, 800) AS other FROM groups LIMIT 200"
    (answer,) = asked(server_of(Common(many), Bounds()), ("sql", {"statement": statement}))
    cut = answer.structured_content
    assert 60 < len(cut["rows"]) < 100 and len(json.dumps(cut["rows"])) < 1_000_000
    assert "of 200 rows are here" in cut["cut"] and "The bounds are 200 rows and 1,000,000 bytes" in cut["cut"]
    assert cut["rows"][0]["long"].endswith("x… cut, characters: 3000000") and cut["remarks"].startswith(
        "200 values cut to 10,000 characters"
    )


@pytest.mark.parametrize("size", [1, 7, 64, 100_000])
def test_printed_rows_are_the_same_in_chunks_of_any_size(size: int) -> None:
    text = b"".join(json.dumps({"n": number, "text": "ü" * number}, ensure_ascii=False).encode() + b"\n" for number in range(50))
    printed = _Printed(Bounds(rows=40, bytes=1500))
    for start in range(0, len(text), size):
        printed.add(text[start : start + size])
    assert [row["n"] for row in printed.rows] == list(range(len(printed.rows))) and 20 < len(printed.rows) < 40
    assert printed.cut(is_late=False).startswith(f"{len(printed.rows)} of 50 rows are here, and the answer has {len(text):,} bytes.")


def test_one_row_that_is_longer_than_an_answer_is_counted(many: str) -> None:
    printed = _Printed(Bounds(bytes=1000))
    printed.add(b'{"a": "' + b"x" * 5000)
    printed.add(b'"}\n')
    assert printed.rows == [] and printed.cut(is_late=False).startswith("0 of 1 rows are here, and the answer has 5,010 bytes.")


def test_tools_say_that_they_only_read_and_take_no_other_argument(place: str) -> None:
    from mcp import Client

    async def tools() -> Any:
        async with Client(server_of(Common(place), Bounds(10, seconds=20))) as client:
            return (await client.list_tools()).tools

    listed = asyncio.run(tools())
    assert {tool.name for tool in listed} == {
        *("morning", "list_groups", "describe_group", "why", "diff", "lag", "expiring", "doctor", "sql")
    }
    assert all(tool.annotations.read_only_hint and tool.description for tool in listed)
    assert all(tool.input_schema["additionalProperties"] is False for tool in listed)
