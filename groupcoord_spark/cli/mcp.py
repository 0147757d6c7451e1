"""``groupcoord mcp``: the reading commands as tools of a Model Context Protocol server over stdio, for agents.

A tool turns its arguments into values for a command, and a process of its own calls the command with them. So an agent gets the same rows
and sentences as a person, no argument is read as an option, and a call that takes too long is ended with everything that it started.
"""

from __future__ import annotations

import asyncio
import json
import sys
from asyncio.subprocess import PIPE
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypedDict

import click

from groupcoord_spark.cli.options import Common, MomentOfRun, ShownRun, command, common_options_of_a_writer
from groupcoord_spark.cli.render import prepare_streams, print_lines
from groupcoord_spark.errors import GroupcoordError
from groupcoord_spark.version import __version__

if TYPE_CHECKING:
    from mcp.server.lowlevel import Server

_NO_SDK: Final = (
    "`groupcoord mcp` needs the package mcp, which is not installed. Where groupcoord_spark's pyproject.toml is, run:"
    " pip install --editable '.[mcp]'."
)
_INSTRUCTIONS: Final = (
    "Kafka's consumer groups, from nightly copies of __consumer_offsets. Begin with morning or list_groups; why explains one group or"
    " offset; sql answers what no other tool does: SHOW TABLES and DESCRIBE TABLE list tables and columns. Answers are of the newest run;"
    " where a tool takes at, it is a time in ISO 8601, or -1 for the run before the newest."
)
_MOST_REMARKS: Final = 4000
_CHUNK: Final = 1 << 16

_LAG: Final = """
SELECT * FROM (SELECT * FROM lag UNION ALL BY NAME SELECT * FROM share_lag)
WHERE group_id IN (SELECT group_id FROM asked_groups) OR NOT EXISTS (FROM asked_groups)
ORDER BY remark = 'beyond_end' DESC NULLS LAST, lag DESC NULLS LAST, cluster, group_id, topic, partition
"""
_EXPIRING: Final = "FROM expiring WHERE first_at IS NOT NULL ORDER BY first_at"


class Call(NamedTuple):
    """A command, or a function of this module, and the values of its parameters. None stands for the default of a parameter."""

    command: str
    values: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much a tool answers at most, and how long it may take."""

    rows: int = 200
    bytes: int = 1_000_000
    seconds: float = 60

    @property
    def value_characters(self) -> int:
        """How long one value of ``sql`` may be."""
        return max(self.bytes // 100, 100)


class ToolAnswer(TypedDict):
    """What a command printed."""

    rows: list[dict[str, Any]]
    is_cut: bool
    cut: str
    remarks: str


_SCHEMA_OF_ANSWER: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "rows": {"type": "array", "items": {"type": "object"}},
        "is_cut": {"type": "boolean", "description": "There are more rows than these."},
        "cut": {"type": "string", "description": "How many rows and bytes there are; empty where all rows are here."},
        "remarks": {"type": "string", "description": "Which run is shown, which values are cut, and what else the command reports."},
    },
    "required": ["rows", "is_cut", "cut", "remarks"],
}


@command("mcp", epilog="Example: groupcoord mcp --warehouse ./warehouse")
@click.option("--most-rows", type=click.IntRange(1), default=200, show_default=True, help="An answer has at most that many rows.")
@click.option("--most-bytes", type=click.IntRange(1000), default=1_000_000, show_default=True, help="And at most that many bytes of JSON.")
@click.option("--seconds", type=click.FloatRange(min=1), default=60, show_default=True, help="An answer takes at most that long.")
@common_options_of_a_writer
def mcp(common: Common, most_rows: int, most_bytes: int, seconds: float) -> None:
    """Run an MCP server over stdin and stdout: morning, list_groups, describe_group, why, diff, lag, expiring, doctor and sql.

    Nothing can be changed by it. Statements of SQL see the tables and views of the newest run, and no files.
    """
    from groupcoord_spark.warehouse.read import open_warehouse

    try:
        from mcp.server.stdio import stdio_server
    except ImportError as e:
        raise GroupcoordError(_NO_SDK) from e
    open_warehouse(common.warehouse)
    server = server_of(common, Bounds(most_rows, most_bytes, seconds))

    async def serve() -> None:
        async with stdio_server() as (requests, answers):
            await server.run(requests, answers, server.create_initialization_options())

    asyncio.run(serve())


def morning(*, at: str | None = None) -> Call:
    """Show changes since the last run that differs, the worst first, each with the command that shows more."""
    return Call("morning", {"form": "json", "at_ms": at})


def list_groups(*, state: str | None = None, group_type: str | None = None, at: str | None = None) -> Call:
    """List all groups with type and state. state: for example Empty or Stable. group_type: Classic, Consumer, Share or Streams."""
    return Call("list", {"states": state or "", "types": group_type or "", "at_ms": at})


def describe_group(*, group: str, view: Literal["offsets", "members", "state"] = "offsets", at: str | None = None) -> Call:
    """Show the committed offsets, the members or the state of a group, or of all groups that match a pattern such as app-*."""
    return Call("describe", {"groups": [group], view: True, "at_ms": at})


def why(*, group: str, topic: str | None = None, partition: int | None = None) -> Call:
    """Explain why a group, or its committed offset of a topic or partition, exists, is gone or never counted. The last row concludes."""
    return Call("why", {"groups": [group], "topic": topic, "partition": partition})


def diff(*, from_time: str | None = None, to_time: str | None = None, only: str | None = None) -> Call:
    """Show what changed between two runs, by their times; by default the newest run and the last that differs from it.

    only: born, changed, rebalanced, gone, rewound, stopped, forward, new, separated by commas.
    """
    return Call("diff", {"from_night": from_time, "to_night": to_time, "only": only})


def lag(*, group: str | None = None, at: str | None = None) -> Call:
    """Show the lag of every partition: offsets beyond the end of the log first, then the largest lag. Share groups are included.

    group: A name or a pattern such as app-*.
    """
    return Call("lag", {"group": group, "at": at})


def expiring(*, at: str | None = None) -> Call:
    """Show the offsets and groups that disappear on each day if nothing changes, the next first."""
    return Call("expiring", {"at": at})


def doctor(*, at: str | None = None) -> Call:
    """Diagnose the topic __consumer_offsets itself, the worst finding first, with evidence and remedy."""
    return Call("doctor", {"at_ms": at})


def sql(*, statement: str, at: str | None = None) -> Call:
    """Return the rows of one SELECT in DuckDB's SQL over the tables and views of the newest run."""
    return Call("sql", {"statement": statement, "at": at})


TOOLS: Final[dict[str, Callable[..., Call]]] = {
    tool.__name__: tool for tool in (morning, list_groups, describe_group, why, diff, lag, expiring, doctor, sql)
}


def server_of(common: Common, bounds: Bounds) -> Server[Any]:
    """Return the server with its tools.

    Args:
        common: Has the warehouse and the cluster that every tool reads.
    """
    from mcp import types
    from mcp.server.lowlevel import Server
    from pydantic import ConfigDict, TypeAdapter

    adapters: dict[str, Any] = {}
    for name, tool in TOOLS.items():
        checked: Any = tool  # mypy takes the argument of TypeAdapter for a type
        adapters[name] = TypeAdapter(checked, config=ConfigDict(strict=True))
    only_reads = types.ToolAnnotations(read_only_hint=True, destructive_hint=False, open_world_hint=False)

    async def list_tools(context: Any, parameters: Any) -> types.ListToolsResult:
        tools = [
            types.Tool(
                name=name,
                description=TOOLS[name].__doc__,
                input_schema=adapter.json_schema(),
                output_schema=_SCHEMA_OF_ANSWER,
                annotations=only_reads,
            )
            for name, adapter in adapters.items()
        ]
        return types.ListToolsResult(tools=tools)

    async def call_tool(context: Any, parameters: types.CallToolRequestParams) -> types.CallToolResult:
        try:
            if parameters.name not in adapters:
                raise GroupcoordError(f"There is no tool {parameters.name!r}. The tools are {', '.join(adapters)}.")
            call = _validated(parameters.name, adapters[parameters.name], parameters.arguments or {})
            answer = await answer_of(call, common, bounds)
        except GroupcoordError as e:
            return types.CallToolResult(content=[types.TextContent(type="text", text=str(e))], is_error=True)
        text = types.TextContent(type="text", text=json.dumps(answer, ensure_ascii=False))
        return types.CallToolResult(content=[text], structured_content={**answer})

    return Server("groupcoord", version=__version__, instructions=_INSTRUCTIONS, on_list_tools=list_tools, on_call_tool=call_tool)


def _validated(name: str, adapter: Any, arguments: dict[str, Any]) -> Call:
    """Return the call for the arguments. Raises GroupcoordError where one is unknown, missing or of another type."""
    from pydantic import ValidationError
    from pydantic_core import ArgsKwargs

    try:
        json.dumps(arguments, ensure_ascii=False).encode()
        call = adapter.validate_python(ArgsKwargs((), arguments))
        assert isinstance(call, Call)
        return call
    except UnicodeEncodeError:
        raise GroupcoordError("An argument has half of a surrogate pair, which is not text.") from None
    except ValidationError as e:
        known = ", ".join(adapter.json_schema()["properties"])
        problem = e.errors()[0]
        argument = ".".join(map(str, problem["loc"]))
        match problem["type"]:
            case "unexpected_keyword_argument":
                raise GroupcoordError(f"There is no argument {argument!r}. The tool {name} takes {known}.") from None
            case "missing_keyword_only_argument":
                raise GroupcoordError(f"The argument {argument!r} is missing. The tool {name} takes {known}.") from None
        raise GroupcoordError(f"The argument {argument!r} is not valid: {problem['msg']}.") from None


async def answer_of(call: Call, common: Common, bounds: Bounds) -> ToolAnswer:
    """Return the rows that a call prints in a process of its own.

    Raises:
        GroupcoordError: The call fails, with the command's own sentence, or takes too long.
    """
    place = {"warehouse": common.warehouse, "cluster": common.cluster}
    request = json.dumps({"call": call, "place": place, "bounds": asdict(bounds)})
    with TemporaryFile() as stdin, TemporaryFile() as stderr:
        stdin.write(request.encode())
        stdin.seek(0)
        process = await asyncio.create_subprocess_exec(*(sys.executable, "-m", __name__), stdin=stdin, stdout=PIPE, stderr=stderr)
        assert process.stdout is not None  # it is a pipe
        printed = _Printed(bounds)
        is_late = False
        try:
            async with asyncio.timeout(bounds.seconds):
                while chunk := await process.stdout.read(_CHUNK):
                    printed.add(chunk)
                await process.wait()
        except TimeoutError:
            is_late = True
        finally:
            if process.returncode is None:
                with suppress(ProcessLookupError):
                    process.kill()
                await process.wait()
        stderr.seek(0)
        remarks = stderr.read(_MOST_REMARKS).decode(errors="replace").strip()
    if printed.error:
        raise GroupcoordError(printed.error)
    if is_late and not printed.cut(is_late):
        raise GroupcoordError(f"The answer took longer than {bounds.seconds:g} seconds. Ask for less, or start the server with --seconds.")
    if process.returncode != 0 and not is_late:
        raise GroupcoordError(f"The command ended with {process.returncode}. {remarks}".strip())
    cut = printed.cut(is_late)
    return {"rows": printed.rows, "is_cut": bool(cut), "cut": cut, "remarks": remarks}


class _Printed:
    """The rows that a process has printed: those within the bounds, and how many there were."""

    def __init__(self, bounds: Bounds) -> None:
        self.rows: list[dict[str, Any]] = []
        self.error = ""
        self._bounds = bounds
        self._row_count = self._byte_count = self._size = 0
        self._line = bytearray()
        self._is_full = False

    def add(self, chunk: bytes) -> None:
        """Take what the process printed next. Rows beyond the bounds are counted and dropped."""
        self._byte_count += len(chunk)
        *ended, rest = chunk.split(b"\n")
        for part in ended:
            self._extend_line(part)
            self._end_line()
        self._extend_line(rest)

    def _extend_line(self, part: bytes) -> None:
        if self._size + len(self._line) + len(part) > self._bounds.bytes:
            self._is_full = True
        if not self._is_full:
            self._line += part

    def _end_line(self) -> None:
        self._is_full |= len(self.rows) == self._bounds.rows
        value = None if self._is_full else json.loads(self._line, parse_constant=str)
        self._size += len(self._line)
        self._line.clear()
        if isinstance(value, str):
            self.error = value
            return
        self._row_count += 1
        if value is not None:
            self.rows.append(value)

    def cut(self, is_late: bool) -> str:
        """Return how much is missing from ``rows``; empty where nothing is."""
        if self._row_count == len(self.rows) and not self._is_full:
            return ""
        least = "at least " if is_late or self._row_count == self._bounds.rows + 1 else ""  # a statement is asked for one row too many
        shown = f"{len(self.rows):,} of {least}{self._row_count:,} rows are here, and the answer has {least}{self._byte_count:,} bytes"
        return f"{shown}. The bounds are {self._bounds.rows:,} rows and {self._bounds.bytes:,} bytes: ask for fewer rows or columns."


def run_call() -> None:
    """Run the call of the request on stdin and print its rows. An error is a JSON text on a line of its own."""
    prepare_streams()
    request = json.load(sys.stdin)
    call, common, bounds = Call(*request["call"]), Common(**request["place"], output="json"), Bounds(**request["bounds"])
    try:
        _run(call, common, bounds)
    except click.ClickException as e:
        sentence = e.format_message()
    except GroupcoordError as e:
        sentence = str(e)
    else:
        return
    print_lines([json.dumps(sentence)])


def _run(call: Call, common: Common, bounds: Bounds) -> None:
    from groupcoord_spark.cli.commands import main

    if (function := _FUNCTIONS.get(call.command)) is not None:
        function(common, bounds, **call.values)
        return
    reader = main.get_command(click.Context(main), call.command)
    assert reader is not None  # a command of ours
    with click.Context(reader, info_name=call.command) as context:
        values = {**call.values, "warehouse": common.warehouse, "cluster": common.cluster, "output": "json"}
        given = {
            parameter.name: parameter.type_cast_value(context, values[parameter.name])
            for parameter in reader.params
            if parameter.name is not None and values.get(parameter.name) is not None
        }
        context.invoke(reader, **given)


def _print_lag(common: Common, bounds: Bounds, *, group: str | None, at: str | None) -> None:
    import pyarrow as pa

    from groupcoord_spark.cli.names import named_groups
    from groupcoord_spark.cli.sql import print_rows
    from groupcoord_spark.warehouse.read import open_warehouse
    from groupcoord_spark.warehouse.sql import SnapshotInDuckDB

    at_ms = _time(at)
    names = [] if group is None else named_groups([group], *common.run(ShownRun(at_ms)))
    snapshot = SnapshotInDuckDB(open_warehouse(common.warehouse), cluster=common.cluster, at_ms=at_ms)
    snapshot.connection.register("asked_groups", pa.table({"group_id": pa.array(names, pa.string())}))
    print_rows(snapshot, _LAG, common.output, most_characters=bounds.value_characters)


def _print_statement(common: Common, bounds: Bounds, *, statement: str, at: str | None) -> None:
    from groupcoord_spark.cli.sql import print_rows
    from groupcoord_spark.errors import UsageError
    from groupcoord_spark.warehouse.read import open_warehouse
    from groupcoord_spark.warehouse.sql import SnapshotInDuckDB

    snapshot = SnapshotInDuckDB(open_warehouse(common.warehouse), cluster=common.cluster, at_ms=_time(at))
    snapshot.restrict()
    statements = snapshot.statements(statement)
    if not statements:
        raise UsageError("The statement is empty. Write one SELECT.")
    print_rows(snapshot, statements[0], common.output, most_rows=bounds.rows + 1, most_characters=bounds.value_characters)


def _time(at: str | None) -> Any:
    return None if at is None else MomentOfRun().convert(at, None, None)


_FUNCTIONS: Final[dict[str, Callable[..., None]]] = {
    "lag": _print_lag, "expiring": partial(_print_statement, statement=_EXPIRING), "sql": _print_statement
}
"""Tools without a command of their own, and the one whose command has more options than a stranger should have."""

if __name__ == "__main__":
    run_call()
