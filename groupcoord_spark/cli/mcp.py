"""``groupcoord mcp``: the reading commands as tools of a Model Context Protocol server over stdio, for agents.

A tool runs the command itself, in a process of its own: an agent gets the same rows and sentences as a person, an answer that takes too
long or has too many rows is ended, and what a statement of SQL does to its process ends with it.
"""

from __future__ import annotations

import asyncio
import json
import sys
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Sequence
from contextlib import suppress
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Any, Final, Literal, TypedDict

import click

from groupcoord_spark import __version__
from groupcoord_spark.cli.options import Common, command, common_options_of_a_writer
from groupcoord_spark.errors import GroupcoordError

if TYPE_CHECKING:
    from mcp.server import MCPServer

_NO_SDK: Final = (
    "`groupcoord mcp` needs the package mcp, which is not installed. Where groupcoord_spark's pyproject.toml is, run:"
    " pip install --editable '.[mcp]'."
)
_INSTRUCTIONS: Final = (
    "Kafka's consumer groups, as nightly copies of __consumer_offsets tell them. Begin with morning or list_groups; why explains one group"
    " or offset; sql answers what no other tool does: SHOW TABLES and DESCRIBE TABLE tell what there is. Answers are of the newest night."
)
_LONGEST_LINE: Final = 16 << 20
_MOST_REMARKS: Final = 4000


class ToolAnswer(TypedDict):
    """What a command printed."""

    rows: list[dict[str, Any]]
    is_cut: bool
    """There are more rows than these."""
    remarks: str
    """What the command says beside the rows, for example which night it shows."""


@command("mcp", epilog="Example: groupcoord mcp --warehouse ./warehouse")
@click.option("--most-rows", type=click.IntRange(1), default=200, show_default=True, help="An answer has at most that many rows.")
@click.option("--seconds", type=click.FloatRange(min=1), default=60, show_default=True, help="An answer takes at most that long.")
@common_options_of_a_writer
def mcp(common: Common, most_rows: int, seconds: float) -> None:
    """A server of the Model Context Protocol over stdin and stdout, by which an agent asks a warehouse: morning, list_groups,
    describe_group, why, diff, lag, expiring, doctor and sql.

    Nothing can be changed by it. Statements of SQL see the tables and views of the newest night, and no files.
    """
    try:
        import mcp.server  # noqa: F401
    except ImportError as e:
        raise GroupcoordError(_NO_SDK) from e
    chosen = [f"--warehouse={common.warehouse}", *([f"--cluster={common.cluster}"] if common.cluster is not None else [])]
    server_of(chosen, most_rows, seconds).run("stdio")


def server_of(chosen: Sequence[str], most_rows: int, seconds: float) -> MCPServer:
    """The server with its tools. chosen: options of every command that choose the warehouse and the cluster."""
    from mcp.server import MCPServer
    from mcp.types import ToolAnnotations

    server = MCPServer("groupcoord", version=__version__, instructions=_INSTRUCTIONS, log_level="WARNING")
    tool = server.tool(annotations=ToolAnnotations(read_only_hint=True, destructive_hint=False, open_world_hint=False))

    async def rows_of(*words: str) -> ToolAnswer:
        return await _answer([words[0], *chosen, "--output=json", *words[1:]], most_rows, seconds)

    async def rows_of_statement(statement: str) -> ToolAnswer:
        return await rows_of("sql", "--sandbox", f"--limit={most_rows + 1}", "--", statement)

    @tool
    async def morning() -> ToolAnswer:
        """What is new since the last night that differs, the worst first, each with the command that shows more."""
        return await rows_of("morning")

    @tool
    async def list_groups(state: str | None = None, group_type: str | None = None) -> ToolAnswer:
        """All groups with type and state. state: for example Empty or Stable. group_type: Classic, Consumer, Share or Streams."""
        return await rows_of("list", f"--state={state or ''}", f"--type={group_type or ''}")

    @tool
    async def describe_group(group: str, view: Literal["offsets", "members", "state"] = "offsets") -> ToolAnswer:
        """The committed offsets, the members or the state of a group; of several with a pattern such as app-*."""
        return await rows_of("describe", f"--group={group}", f"--{view}")

    @tool
    async def why(group: str, topic: str | None = None, partition: int | None = None) -> ToolAnswer:
        """Why a group, or its committed offset of a topic or partition, is there, has gone or never counted. The last row concludes."""
        of_topic = [f"--topic={topic}"] if topic is not None else []
        return await rows_of("why", f"--group={group}", *of_topic, *([f"--partition={partition}"] if partition is not None else []))

    @tool
    async def diff(from_time: str | None = None, to_time: str | None = None, only: str | None = None) -> ToolAnswer:
        """What changed between two nights. Times are ISO 8601; without them the newest night and the last that differs from it.

        only: born, changed, rebalanced, gone, rewound, forward, new, separated by commas.
        """
        options = {"from": from_time, "to": to_time, "only": only}
        return await rows_of("diff", *(f"--{name}={value}" for name, value in options.items() if value is not None))

    @tool
    async def lag(group: str | None = None) -> ToolAnswer:
        """The lag of every partition with a log end, the largest first: of one group, or of all."""
        of_group = "" if group is None else "WHERE group_id = '" + group.replace("'", "''") + "'"
        return await rows_of_statement(f"FROM lag {of_group} ORDER BY lag DESC NULLS LAST")

    @tool
    async def expiring() -> ToolAnswer:
        """Which offsets and groups disappear on which day if nothing changes, the next first."""
        return await rows_of_statement("FROM expiring WHERE first_at IS NOT NULL ORDER BY first_at")

    @tool
    async def doctor() -> ToolAnswer:
        """What is wrong with the topic __consumer_offsets itself, the worst first, with the evidence and what mends it."""
        return await rows_of("doctor")

    @tool
    async def sql(statement: str) -> ToolAnswer:
        """The rows of one SELECT in DuckDB's SQL over the tables and views of the newest night."""
        return await rows_of_statement(statement)

    return server


async def _answer(words: Sequence[str], most_rows: int, seconds: float) -> ToolAnswer:
    """The rows that a command prints as JSON. Raises ToolError with the command's own sentence where it fails."""
    from mcp.server.mcpserver.exceptions import ToolError

    with TemporaryFile() as stderr:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "groupcoord_spark", *words), stdin=DEVNULL, stdout=PIPE, stderr=stderr, limit=_LONGEST_LINE
        )
        assert process.stdout is not None  # it is a pipe
        rows: list[dict[str, Any]] = []
        try:
            async with asyncio.timeout(seconds):
                async for line in process.stdout:
                    rows.append(json.loads(line))
                    if len(rows) > most_rows:
                        break
                else:
                    await process.wait()
        except TimeoutError:
            raise ToolError(f"The answer took longer than {seconds:g} seconds. Ask for less, or start the server with --seconds.") from None
        except ValueError as e:
            raise ToolError(f"A row of the answer has more than {_LONGEST_LINE:,} bytes. Ask for fewer columns.") from e
        finally:
            if process.returncode is None:
                with suppress(ProcessLookupError):
                    process.kill()
                await process.wait()
        stderr.seek(0)
        remarks = stderr.read(_MOST_REMARKS).decode(errors="replace").strip()
    is_cut = len(rows) > most_rows
    if not is_cut and process.returncode != 0:
        raise ToolError(remarks.splitlines()[-1].removeprefix("Error: ") if remarks else f"The command ended with {process.returncode}.")
    return {"rows": rows[:most_rows], "is_cut": is_cut, "remarks": remarks}
