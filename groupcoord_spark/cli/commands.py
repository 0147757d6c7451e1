"""The ``groupcoord`` command: which commands there are, versions, and what becomes of errors."""

import io
import os
import sys
import traceback
from collections.abc import Sequence
from importlib import import_module, metadata
from typing import Any, Final

import click

from groupcoord_spark.cli import interruption
from groupcoord_spark.cli.render import drop_what_is_left_on_stdout, prepare_streams, say
from groupcoord_spark.errors import GroupcoordError, SparkMissingError, UsageError
from groupcoord_spark.version import __version__

LISTED: Final = {
    "To begin with": {
        "demo": "Read three nights of a shop's cluster and answer five questions.",
    },
    "What happened": {
        "morning": "Show news since the last run that differs, the worst first.",
        "why": "Why a group or an offset is there, has gone or never counted.",
        "doctor": "Why the offsets topic is large, slow or stuck, and what mends it.",
        "diff": "What changed from one run to another, and why offsets are gone.",
        "timeline": "A group's life in order: commits, rewinds, rebalances, removals.",
        "warnings": "Doubts and quarantined records of a run, by code.",
    },
    "A run": {
        "list": "Groups, as kafka-consumer-groups --list prints them.",
        "describe": "Groups in detail, as kafka-consumer-groups --describe prints them.",
        "expire": "What a cleanup would remove, under any retention, and when.",
        "export-offsets": "A run's offsets for kafka-consumer-groups --reset-offsets.",
        "plan": "What a reset of offsets or a failover would do, before it is done.",
        "report": "One page about one run for a browser, with every table behind it.",
        "sql": "SQL over the tables and views of a run, by DuckDB; views for other engines.",
    },
    "Runs": {
        "nightly": "Read, decode, replay, expire and write: one run.",
        "metrics": "Figures of the newest runs for Prometheus, in OpenMetrics.",
        "runs": "The runs and point-in-time runs of a warehouse, newest first.",
        "coverage": "Per type and version of record: read, decoded, quarantined.",
        "verify": "Our state against what a broker answers; 1 on any difference.",
        "maintain": "Join files of history, drop old runs, delete what nothing needs.",
    },
    "Logs and rules": {
        "dump": "Every record of the offsets topic as a line of JSON.",
        "simulate": "What the coordinator answers and writes in a scenario.",
        "assign": "What each assignor would give a group's members.",
    },
    "This installation": {
        "mcp": "Run an MCP server over a warehouse.",
        "completion": "Print a shell completion script.",
        "warm-up": "Once for an installation: later runs start some seconds sooner.",
    },
}
"""Purpose -> command -> its line in --help. The command is the function of its name, dashes as underscores, in its module of ``cli``."""

COMMANDS: Final = tuple(name for commands in LISTED.values() for name in commands)


_TYPED: Final = {
    "lag": (["list", "--lag"], ["describe"]),
    "groups": (["list"], ["describe", "--state"]),
    "offsets": (["describe", "--all-groups"], ["describe"]),
}
"""Word -> the words of the command for all groups, and of the one for some."""

_READERS: Final = frozenset(
    ("list", "describe", "expire", "export-offsets", "runs", "warnings", "diff", "coverage", "timeline", "why", "assign", "plan")
)
"""Commands that read tables and start neither Spark nor a broker's client."""


class Commands(click.Group):
    """A group that imports a command's module when the command is called, and turns errors into one sentence and an exit code."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        name = cmd_name.replace("-", "_")
        command = getattr(import_module(f"groupcoord_spark.cli.{name}"), "list_groups" if name == "list" else name)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        width = max(map(len, COMMANDS))
        for purpose, commands in LISTED.items():
            with formatter.section(purpose):
                formatter.write_dl([(name.ljust(width), line) for name, line in commands.items()])

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, self._command_words(ctx, args))
        except click.UsageError as error:
            raise click.UsageError(f"There is no command {args[0]!r}.{_what_was_meant(args[0])}", ctx) from error

    def _command_words(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Return the words of a command in place of what people type for it: lag, groups and offsets, with or without a group."""
        if not args or args[0] not in _TYPED:
            return args
        of_all, of_group = _TYPED[args[0]]
        describe = self.get_command(ctx, "describe")
        assert describe is not None
        typed = describe.make_context("describe", list(args[1:]), parent=ctx, resilient_parsing=True).params
        has_group = any(typed.get(name) for name in ("words", "groups", "all_groups"))
        return [*(of_group if has_group else of_all), *args[1:]]

    def invoke(self, ctx: click.Context) -> Any:
        result: Any = 0
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError:
            # The reader has closed the pipe (| head): no error, and a command that has its exit code keeps it.
            drop_what_is_left_on_stdout()
        return result

    def main(self, args: Sequence[str] | None = None, prog_name: str | None = None, **extra: Any) -> Any:  # type: ignore[override]
        """Run a command and leave by SystemExit: 0 done, 1 it could not be done, 2 usage or input, 3 an alert, 130 interrupted."""
        words = list(sys.argv[1:] if args is None else args)
        prepare_streams()
        if args is None and words and words[0] in _READERS:
            _leave_pandas_out()
        try:
            _refuse_what_is_no_text(words)
            result = self._result(words, prog_name or "groupcoord", extra)
            code = result if isinstance(result, int) else 0
        except (KeyboardInterrupt, click.Abort):
            say("Interrupted.")
            code = 130
        except click.ClickException as e:
            say(_as_click_prints(e))
            code = e.exit_code
        except GroupcoordError as e:
            if "--debug" in words:
                say(traceback.format_exc().rstrip())
            say(f"Error: {e}")
            code = e.exit_code
        except OSError as e:
            # Readers of inputs and writers of tables raise errors of ours, so this one is about stdout or a file of the installation.
            if "--debug" in words:
                say(traceback.format_exc().rstrip())
            lines = (e.strerror or str(e)).splitlines() or [type(e).__name__]
            say(f"Error: {e.filename or 'The output'} cannot be read or written: {lines[0]}.")
            drop_what_is_left_on_stdout()
            code = 1
        sys.exit(code)

    def _result(self, words: list[str], prog_name: str, extra: dict[str, Any]) -> Any:
        try:
            return super().main(words, prog_name, **{**extra, "standalone_mode": False})
        except (Exception, KeyboardInterrupt) as failure:
            if interruption.has_come():
                raise interruption.Interrupted from failure
            if isinstance(failure, ModuleNotFoundError) and SparkMissingError.explains(failure):
                raise SparkMissingError(failure) from failure
            raise


def _what_was_meant(word: str) -> str:
    """Return a question with the commands, tables and views nearest to the word, or ""."""
    from groupcoord_spark.cli.names import nearest
    from groupcoord_spark.warehouse.tables import TABLES
    from groupcoord_spark.warehouse.view_texts import VIEWS

    by_name = {name.replace("_", "-"): f"groupcoord sql 'from {name}'" for name in (*TABLES, *VIEWS)}
    by_name |= {name: f"groupcoord {name}" for name in COMMANDS}
    meant = [f"`{by_name[name]}`" for name in nearest([word.replace("_", "-")], by_name, cutoff=0.65)]
    return f" Did you mean {' or '.join(meant)}?" if meant else " `groupcoord --help` lists the commands."


class _WithoutPandas:
    """A module finder that makes ``import pandas`` fail."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError("No module named 'pandas': a command that reads tables has no use for it", name=name)


def _leave_pandas_out() -> None:
    """Makes ``import pandas`` fail in this process, which answers one command and ends.

    pyarrow imports pandas when it makes its first array from Python values, in case one of them is a pandas object: 0.25 s of CPU of the
    0.6 s that ``timeline`` takes on the sample. No command of ``_READERS`` has a use for pandas.
    """
    sys.meta_path.insert(0, _WithoutPandas)


def _refuse_what_is_no_text(words: Sequence[str]) -> None:
    """Raises UsageError for a word that is neither text in the encoding of the locale nor the name of a file."""
    for word in words:
        try:
            os.fspath(word).encode("utf-8")
        except UnicodeEncodeError:
            if not os.path.lexists(word):
                encoding = sys.getfilesystemencoding()
                raise UsageError(f"{word!r} is not text in the encoding of this locale, {encoding}. Set LC_ALL=C.UTF-8.") from None


def _as_click_prints(error: click.ClickException) -> str:
    """Usage and error as click prints them. click writes them to a stream of its own, which may take bytes that the terminal does not."""
    text = io.StringIO()
    error.show(text)
    return text.getvalue().rstrip("\n")


def _versions(ctx: click.Context, parameter: click.Parameter, wanted: bool) -> None:
    if wanted:
        click.echo(f"groupcoord {__version__} (Spark {_installed('pyspark')}, Delta {_installed('deltalake')})")
        ctx.exit()


def _installed(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"


@click.group(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
    epilog="Example: groupcoord list --state",
)
@click.option("--version", is_flag=True, is_eager=True, expose_value=False, callback=_versions, help="Our version, Spark's and Delta's.")
def main() -> None:
    """Kafka's __consumer_offsets, decoded, replayed and expired exactly as the group coordinator would."""
