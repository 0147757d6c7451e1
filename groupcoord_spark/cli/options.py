"""Options that commands share, and the words users write for moments and durations."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import click

from groupcoord_spark.cli.render import lines, moment, print_lines, say, second, show_all_columns_whole, write_records
from groupcoord_spark.errors import GroupcoordError, UsageError
from groupcoord_spark.moments import RunsAgo, RunTime, is_number, now_ms, read_duration, written_time
from groupcoord_spark.wording import counted

if TYPE_CHECKING:
    from groupcoord_spark.coordinator.semantics import Semantics
    from groupcoord_spark.warehouse import Run, Warehouse

Output = Literal["table", "json", "csv"]

_EARLIEST_MS, _LATEST_MS = -62_135_596_800_000, 253_402_300_799_999

_USUAL_MS: Final = range(1_262_304_000_000, 4_133_980_800_000)
"""The years 2010 to 2100. Kafka was made public in 2011: a time outside is nearly always a slip, as seconds written for milliseconds."""

_OTHER_UNITS: Final = (("seconds", 1000, 1), ("microseconds", 1, 1000), ("nanoseconds", 1, 1_000_000))
"""Unit of an epoch time, and the factor and divisor that convert it to milliseconds."""

_OLD_RUN_MS: Final = 36 * 3_600_000
"""A newest run older than this is reported as old: a daily run, and half a day of delay."""

_SHARED_SECTIONS: Final = {
    "Which run": ("warehouse", "cluster", "at_ms", "run_id", "look_back", "from_night", "to_night", "force"),
    "Output": ("output", "wide", "quiet", "log_level", "debug", "help"),
}
"""Purpose -> parameters of the options that many commands share. They stand after the options of the command itself."""

_IS_FORCED: Final = "groupcoord_spark.force"
"""The key in click's ``ctx.meta`` that says that --force was given."""


@dataclass(frozen=True, slots=True)
class Common:
    """The options that all commands share."""

    warehouse: str = ""
    cluster: str | None = None
    output: Output = "table"
    quiet: bool = False
    debug: bool = False

    def run(self, shown_run: ShownRun | None = None, *, is_said: bool = True) -> tuple[Warehouse, Run]:
        """Return the warehouse, and the run chosen by ``shown_run``, by default the newest of the cluster.

        is_said: stderr says which run it is where it is not the newest run, or an old one.
        Raises GroupcoordError where there is no such run, or where several clusters need --cluster.
        """
        from groupcoord_spark.warehouse.read import open_warehouse

        warehouse = open_warehouse(self.warehouse)
        run = (shown_run or ShownRun()).of(warehouse, warehouse.named_cluster(self.cluster))
        if is_said:
            say_which_run(self, warehouse, run)
        return warehouse, run

    def runs(self, shown_run: ShownRun) -> tuple[Warehouse, list[Run]]:
        """Return the warehouse, and the run chosen by ``shown_run`` of each cluster where none is named; else as ``run`` does."""
        from groupcoord_spark.warehouse.read import open_warehouse

        warehouse = open_warehouse(self.warehouse)
        clusters = warehouse.clusters_with_nightly_runs()
        if self.cluster is not None or len(clusters) < 2 or shown_run.run_id is not None or shown_run.look_back:
            warehouse, run = self.run(shown_run)
            return warehouse, [run]
        return warehouse, [shown_run.of(warehouse, cluster) for cluster in clusters]

    def show(
        self,
        names: Sequence[str],
        rows: Iterable[Sequence[Any]],
        *,
        titles: Sequence[str] | None = None,
        cells: Iterable[Sequence[object]] | None = None,
        least_widths: Sequence[int | None] | None = None,
        colours: Sequence[str | None] | None = None,
    ) -> None:
        """Prints rows as --output asks: a table for people, or JSON or CSV for programs.

        titles, cells: the columns and rows for people; None: the names in capitals, the same rows. least_widths, colours: as for ``lines``.
        """
        if self.output == "table":
            titles = [name.upper().replace("_", "-") for name in names] if titles is None else titles
            print_lines(lines(titles, rows if cells is None else cells, least_widths, colours))
        else:
            write_records(self.output, names, rows)

    def say(self, sentence: str) -> None:
        """Prints a remark on stderr, but for --quiet."""
        if not self.quiet:
            say(sentence)


class CommandByPurpose(click.Command):
    """A command whose --help lists its options by purpose.

    sections: purpose -> parameters, for a command with many options of its own; its other options stand under "Options".
    """

    def __init__(self, *args: Any, sections: Mapping[str, Sequence[str]] | None = None, **rest: Any) -> None:
        super().__init__(*args, **rest)
        self._sections = sections or {}

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the words of the command line. ``--state=--type`` gives --state a value, which click reads as a second option."""
        names = {name for parameter in self.params if isinstance(parameter.type, Words) for name in parameter.opts}
        split = [(*word.partition("="), word) for word in args]
        return super().parse_args(
            ctx, [f"{name}= {value}" if name in names and value[:1] == "-" else word for name, _, value, word in split]
        )

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        purposes = {name: purpose for purpose, names in {**self._sections, **_SHARED_SECTIONS}.items() for name in names}
        records: dict[str, list[tuple[str, str]]] = {purpose: [] for purpose in ("Options", *self._sections, *_SHARED_SECTIONS)}
        for parameter in self.get_params(ctx):
            if (record := parameter.get_help_record(ctx)) is not None:
                records[purposes.get(parameter.name or "", "Options")].append(record)
        for purpose, options in records.items():
            if options:
                with formatter.section(purpose):
                    formatter.write_dl(options)


command: Final = partial(click.command, cls=CommandByPurpose)
"""``click.command`` for the commands of ours."""


_WAREHOUSE: Final = (
    click.option(
        "--warehouse",
        default="./warehouse",
        envvar="GROUPCOORD_WAREHOUSE",
        show_default=True,
        show_envvar=True,
        metavar="DIR",
        help="Directory or URI of the warehouse.",
    ),
    click.option(
        "--cluster",
        envvar="GROUPCOORD_CLUSTER",
        show_envvar=True,
        metavar="NAME",
        help="The Kafka cluster. [default: the warehouse's only one]",
    ),
)

_OUTPUT: Final = (
    click.option(
        "--output",
        type=click.Choice(["table", "json", "csv"]),
        default="table",
        show_default=True,
        help="Rows for people, or for programs.",
    ),
    click.option("--wide", is_flag=True, help="On a terminal: columns as wide as their cells. [default: they fit the terminal]"),
)

_REMARKS: Final = (
    click.option("--quiet", is_flag=True, help="No progress, summary or remarks on stderr."),
    click.option(
        "--log-level",
        type=click.Choice(["debug", "info", "warning", "error"], case_sensitive=False),
        default="warning",
        show_default=True,
        help="What is logged on stderr.",
    ),
    click.option("--debug", is_flag=True, help="Show the traceback of an error."),
)


def _with_common(command: Callable[..., Any], options: Sequence[Callable[..., Any]]) -> Callable[..., Any]:
    @wraps(command)
    def with_common(
        *args: Any,
        quiet: bool,
        log_level: str,
        debug: bool,
        warehouse: str | None = None,
        cluster: str | None = None,
        output: Output = "table",
        wide: bool = False,
        **rest: Any,
    ) -> Any:
        if wide:
            show_all_columns_whole()
        if warehouse == "":
            raise UsageError("--warehouse is given without a name. Name its directory, or leave the option out for ./warehouse.")
        if cluster == "":
            raise UsageError("--cluster is given without a name. Name the Kafka cluster, or leave the option out.")
        logging.basicConfig(level=log_level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s")
        for handler in logging.getLogger().handlers:
            handler.addFilter(_is_not_of_py4j)
        return command(*args, common=Common(warehouse or "", cluster, output, quiet, debug), **rest)

    for option in reversed(options):
        with_common = option(with_common)
    return with_common


common_options: Final = partial(_with_common, options=(*_WAREHOUSE, *_OUTPUT, *_REMARKS))
"""--warehouse, --cluster, --output, --wide, --quiet, --log-level and --debug; the command gets them as ``common``."""
common_options_of_a_writer: Final = partial(_with_common, options=(*_WAREHOUSE, *_REMARKS))
"""The common options of a command that prints no rows, or rows in a form of their own: without --output."""
common_options_without_warehouse: Final = partial(_with_common, options=_REMARKS)
"""The common options of a command that reads no tables and prints one form of lines: without --warehouse, --cluster and --output."""
common_options_with_output: Final = partial(_with_common, options=(*_OUTPUT, *_REMARKS))
"""The common options of a command that reads no tables and prints rows: without --warehouse and --cluster."""


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    """Return whether a log record is not from py4j, which logs each Java call with its arguments, including passwords of Kafka clients."""
    return "py4j" not in Path(record.pathname).parts


def alert(due: str) -> int:
    """Return the exit code for --fail-on: 3 and a sentence on stderr if a requested alert is due, else 0.

    ``due`` is a sentence without a full stop, or "" if no requested alert is due.
    """
    if due:
        say(f"Alert: {due}.")
    return 3 if due else 0


def say_which_run(common: Common, warehouse: Warehouse, run: Run) -> None:
    """Print one line on stderr if the shown run is not the newest, or older than 36 hours."""
    from groupcoord_spark.warehouse.tables import NIGHTLY

    if common.quiet:
        return
    runs = [each for each in warehouse.finished_runs(run.cluster) if each.kind == NIGHTLY]
    age_ms = now_ms() - run.as_of_ms
    if not runs or run.run_id != runs[-1].run_id or age_ms > _OLD_RUN_MS:
        say(f"{'run' if run.kind == NIGHTLY else 'point-in-time run'} of {minute_and_age(run.as_of_ms)}")


def minute_and_age(milliseconds: int) -> str:
    """Format the time to the minute with its age: ``2026-11-23T08:00Z, 3 hours ago``."""
    return f"{_minute(milliseconds)}, {_age(now_ms() - milliseconds)}"


def _minute(milliseconds: int) -> str:
    text = moment(milliseconds) or ""
    return f"{text[:16]}Z" if text.endswith("Z") else text


def _age(milliseconds: int) -> str:
    length = rounded_duration(abs(milliseconds))
    return "now" if length is None else f"{length} ago" if milliseconds > 0 else f"in {length}"


def rounded_duration(milliseconds: int) -> str | None:
    """Return ``3 days``, ``5 hours`` or ``1 minute``; None for less than a minute."""
    for unit, size, least in (("day", 86_400_000, 2), ("hour", 3_600_000, 2), ("minute", 60_000, 1)):
        if milliseconds >= least * size:
            return counted(milliseconds // size, unit)
    return None


def newest_record_text(newest_ms: int, as_of_ms: int) -> str:
    """Return the time of the newest record of a copy, and how long before the run's as-of that is."""
    age = rounded_duration(as_of_ms - newest_ms)
    return f"{second(newest_ms)}{f', {age} before the as-of' if age else ''}"


class Moment(click.ParamType):  # type: ignore[type-arg]
    """TIME: ``now``, ISO 8601 (UTC unless it says otherwise) or epoch milliseconds; the command gets epoch milliseconds.

    On a command line an epoch number of another unit is refused, and so is a time outside of the years 2010 to 2100, but for --force.
    is_border: the time only begins or ends a range, where any year of ISO 8601 makes sense.
    """

    name = "TIME"

    def __init__(self, *, is_border: bool = False) -> None:
        self._is_border = is_border

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        text = str(value).strip()
        if text == "now":
            return now_ms()
        milliseconds = written_time(text)
        if milliseconds is None:
            self.fail(f"{value!r} is not a time. Write now, 2026-11-20T03:00:00Z or epoch milliseconds.", param, ctx)
        is_typed = ctx is not None and not ctx.meta.get(_IS_FORCED)
        if is_typed and milliseconds not in _USUAL_MS:
            self._refuse_slip(value, milliseconds, is_number=is_number(text), param=param, ctx=ctx)
        if not _EARLIEST_MS <= milliseconds <= _LATEST_MS:
            self.fail(f"{value!r} is outside of the years 1 to 9999.", param, ctx)
        return milliseconds

    def _refuse_slip(
        self, value: Any, milliseconds: int, *, is_number: bool, param: click.Parameter | None, ctx: click.Context | None
    ) -> None:
        """Reject a number in another unit, and an unusual year unless the time is a bound."""
        if is_number:
            for unit, factor, divisor in _OTHER_UNITS:
                meant = milliseconds * factor // divisor
                if meant in _USUAL_MS:
                    self.fail(f"{value!r} looks like {unit}, and a number is epoch milliseconds: did you mean {meant}?", param, ctx)
        if not self._is_border and _EARLIEST_MS <= milliseconds <= _LATEST_MS:
            when = moment(milliseconds)
            self.fail(f"{value!r} is {when}, outside of the years 2010 to 2100. If that time is meant, add --force.", param, ctx)


class MomentOfRun(Moment):
    """TIME, or ``-2`` for the run two runs before the newest one; the command gets epoch milliseconds or RunsAgo."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> RunTime:  # type: ignore[override]
        if isinstance(value, RunsAgo):
            return value
        is_distance = re.fullmatch(r"-\d{1,5}", str(value).strip()) is not None and not isinstance(value, int)
        return RunsAgo(-int(value)) if is_distance else super().convert(value, param, ctx)


def _keep_force(ctx: click.Context, parameter: click.Parameter, is_forced: bool) -> None:
    ctx.meta[_IS_FORCED] = is_forced


force_option = click.option(
    "--force",
    is_flag=True,
    is_eager=True,  # read before the times, wherever --force stands
    expose_value=False,
    callback=_keep_force,
    help="Take a time outside of the years 2010 to 2100.",
)
"""Times of any year are taken."""


class DirectoryToWrite(click.Path):
    """DIR; the command gets a Path. An empty word, as of a script's variable that is not set, is not the current directory."""

    def __init__(self) -> None:
        super().__init__(file_okay=False, path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == "":
            self.fail("the name is empty. Name a new or empty directory.", param, ctx)
        return super().convert(value, param, ctx)


class Duration(click.ParamType):  # type: ignore[type-arg]
    """``7d``, ``36h``, ``90m``, ``30s`` or ``60000ms``; the command gets milliseconds."""

    name = "DURATION"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        try:
            return read_duration(str(value))
        except UsageError as e:
            self.fail(str(e), param, ctx)


def at_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """--at, which run is shown, and --force; the command gets ``at_ms``."""
    at = click.option("--at", "at_ms", type=MomentOfRun(), help="Show the run of that moment; -2: two runs ago. [default: the newest]")
    return at(force_option(command))


@dataclass(frozen=True, slots=True)
class ShownRun:
    """Which run the user asks to see: --at, --run and --look-back."""

    at_ms: RunTime | None = None
    run_id: str | None = None
    look_back: bool = False

    def of(self, warehouse: Warehouse, cluster: str) -> Run:
        """Return the chosen run of that cluster. Raises WarehouseError without such a run."""
        return warehouse.run(cluster, at_ms=self.at_ms, run_id=self.run_id, look_back=self.look_back)


def shown_run_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """--at, --run, --look-back, which run is shown, and --force; the command gets ``shown_run``."""

    @wraps(command)
    def with_shown(*args: Any, at_ms: RunTime | None, run_id: str | None, look_back: bool, **rest: Any) -> Any:
        if run_id is not None and (at_ms is not None or look_back):
            raise click.UsageError("--run names one run: leave --at and --look-back out.")
        return command(*args, shown_run=ShownRun(at_ms, run_id, look_back), **rest)

    run = click.option(
        "--run", "run_id", metavar="RUN_ID", help="Show that run, also a point-in-time run; the beginning of its id is enough."
    )
    is_point_in_time = click.option(
        "--look-back", is_flag=True, help="Show the newest point-in-time run (nightly --until), with --at that of the moment."
    )
    return at_option(run(is_point_in_time(with_shown)))


def duration_text(milliseconds: int) -> str:
    """Format a duration in the largest exact unit, as --offsets-retention accepts it."""
    return next(
        f"{milliseconds // size}{unit}"
        for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1))
        if milliseconds % size == 0
    )


def groups_option(help: str, *, required: bool = False, as_words: bool = False) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add --group, given once or several times, each a name or a pattern; the command gets them as ``groups``.

    Args:
        required: Fail where no group is named.
        as_words: Take groups as words without --group too.
    """
    text = f"{help}, or a pattern such as 'app-*'; may be given several times."

    def with_groups(command: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(command)
        def with_words(*args: Any, groups: tuple[str, ...], words: tuple[str, ...] = (), **rest: Any) -> Any:
            named = (*groups, *words)
            if required and not named:
                raise click.UsageError("Name a group.")
            return command(*args, groups=named, **rest)

        is_needed = required and not as_words
        option = click.option(
            "--group", "groups", multiple=True, required=is_needed, metavar="GROUP", shell_complete=complete_groups, help=text
        )
        words = click.argument("words", metavar="[GROUP]...", nargs=-1, shell_complete=complete_groups)
        return words(option(with_words)) if as_words else option(with_words)

    return with_groups


def _known_names(ctx: click.Context, table: str, column: str, **conditions: str) -> list[str]:
    """Return the names in a table's column for shell completion, or none if the warehouse cannot be read."""
    from groupcoord_spark.warehouse.read import Condition, open_warehouse

    try:
        warehouse = open_warehouse(ctx.params.get("warehouse") or os.environ.get("GROUPCOORD_WAREHOUSE") or "./warehouse")
        cluster = warehouse.named_cluster(ctx.params.get("cluster") or os.environ.get("GROUPCOORD_CLUSTER"))
        where: list[Condition] = [(name, "=", value) for name, value in conditions.items()]
        return sorted(set(warehouse.read(table, cluster=cluster, columns=[column], where=where)[column].to_pylist()))
    except (GroupcoordError, UsageError):
        return []


def complete_groups(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Return groups of the newest run that start with the typed text."""
    return [name for name in _known_names(ctx, "groups", "group_id") if name.startswith(incomplete)]


def complete_topics(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Return topics with a committed offset of the typed group, or of any group."""
    group_ids = ctx.params.get("groups") or [ctx.params.get("group_id")]
    conditions = {"group_id": group_ids[-1]} if group_ids[-1] else {}
    return [name for name in _known_names(ctx, "committed_offsets", "topic", **conditions) if name.startswith(incomplete)]


class Words(click.ParamType):  # type: ignore[type-arg]
    """Words from a list, separated by commas, in any case; no word at all stands for every one of them."""

    def __init__(self, name: str, words: Sequence[str]) -> None:
        self.name = name
        self._words = {word.lower(): word for word in words}

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> frozenset[str]:
        if isinstance(value, frozenset):
            return value
        chosen = [word.strip() for word in str(value).split(",") if word.strip()]
        unknown = ", ".join(repr(word) for word in chosen if word.lower() not in self._words)
        if unknown:
            self.fail(f"{unknown} is not one of {', '.join(self._words.values())}.", param, ctx)
        return frozenset(self._words[word.lower()] for word in chosen)


def semantics_of(run: Run) -> Semantics:
    """Return the semantics that a run applied, from its row in ``runs``.

    Raises GroupcoordError for a run of an earlier version of this program that accepted a release which does not exist.
    """
    from groupcoord_spark.coordinator.semantics import semantics_for

    try:
        return semantics_for(run.semantics, run.broker_version).with_settings(run.settings)
    except UsageError as e:
        raise GroupcoordError(f"Run {run.run_id} cannot be judged: {e} Run the nightly again with a release that exists.") from e
