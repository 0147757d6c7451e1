"""``groupcoord demo``: three nights of a shop's cluster, and five questions about it."""

import sys
import tarfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NamedTuple

import click

from groupcoord_spark.cli.options import Common, command, common_options_without_warehouse
from groupcoord_spark.cli.render import print_lines, second
from groupcoord_spark.errors import InputError
from groupcoord_spark.wording import command_line, counted

CLUSTER: Final = "shop"
NIGHTS: Final = tuple(int(datetime(2026, 11, day, 3, tzinfo=UTC).timestamp() * 1000) for day in (18, 19, 20))
"""When each copy of the broker's logs was made."""
ARCHIVE: Final = Path(__file__).with_name("demo.tar.xz")


class Question(NamedTuple):
    """A question to the cluster and the command that answers it."""

    question: str
    words: tuple[str, ...]


_SKIPS: Final = "select group_id, topic, partition, skipped_at, records_skipped, cause, certainty from skips order by partition"

QUESTIONS: Final = (
    Question("What is new since the run before?", ("morning",)),
    Question("Which groups are behind?", ("list", "--lag")),
    Question("Why did invoice-run read every invoice again?", ("why", "invoice-run", "--topic", "invoices", "--partition", "0")),
    Question("Which records were never read?", ("sql", _SKIPS)),
    Question("Will our offsets expire?", ("expire", "--group", "newsletter-mailer", "--group", "invoice-run")),
)

MORE: Final = (
    Question("Which partition stands still although its group moves?", ("sql", "from stalled")),
    Question("Which transaction is open, and whose is it?", ("sql", "from open_transactions")),
    Question("Which topics has nobody read for a while?", ("sql", "from orphan_topics")),
    Question("Which group id do two services share?", ("sql", "from shared_group_id")),
)

OWN_CLUSTER: Final = (
    "  mkdir -p kafka-logs && cp -pr /path/to/kafka-logs/{__*,*-checkpoint,meta.properties} ./kafka-logs/",
    "  groupcoord nightly ./kafka-logs --cluster mine --warehouse ./warehouse",
    "  groupcoord morning --warehouse ./warehouse",
)


def unpack(directory: Path) -> list[Path]:
    """Write the broker's logs of each run below a directory, and return the directory of each run.

    Raises:
        InputError: a file cannot be written.
    """
    try:
        with tarfile.open(ARCHIVE) as archive:
            archive.extractall(directory, filter="data")
    except OSError as e:
        raise InputError(f"The logs of the demo cannot be written to {directory}: {e.strerror or e}.") from e
    return sorted(directory.glob("night-*"))


@command(epilog="Example: groupcoord demo --warehouse ./demo-warehouse")
@click.option(
    "--warehouse", "place", default="./demo-warehouse", show_default=True, metavar="DIR", help="Directory of the warehouse to write."
)
@click.option("--logs", default="./demo-logs", show_default=True, metavar="DIR", help="Directory for the copies of the broker's logs.")
@common_options_without_warehouse
def demo(common: Common, place: str, logs: str) -> int:
    """Read three nights of a shop's cluster and answer five questions, each by one command.

    A Kafka 4.3 broker and real clients wrote the logs, which come with the package.
    """
    from groupcoord_spark.warehouse.read import open_warehouse

    _make_runs(common, place, Path(logs))
    of_cluster = ["--cluster", CLUSTER] if len(open_warehouse(place).clusters()) > 1 else []
    codes = [_answer(number, question, place, of_cluster) for number, question in enumerate(QUESTIONS, 1)]
    print_lines(["", "There is more to find:"])
    for question in MORE:
        print_lines([f"  {question.question}", f"    {command_line(*question.words, *of_cluster, warehouse=place)}"])
    print_lines(["", "Your own cluster:", *OWN_CLUSTER])
    return max(codes)


def _make_runs(common: Common, warehouse: str, logs: Path) -> None:
    """Write the logs, and make the runs that the warehouse does not have yet."""
    from groupcoord_spark.cli.progress import StageLines
    from groupcoord_spark.pipeline.run_nightly import run_nightly, session
    from groupcoord_spark.spark.session import session_ends_with_block
    from groupcoord_spark.warehouse.read import open_warehouse

    directories = unpack(logs)
    opened = open_warehouse(warehouse) if Path(warehouse).is_dir() else None
    done = {run.as_of_ms for run in opened.finished_runs(CLUSTER)} if opened and CLUSTER in opened.clusters() else set()
    if done >= set(NIGHTS):
        return
    with session_ends_with_block(), StageLines(quiet=common.quiet) as progress:
        progress.begin("start Spark")
        session()
        progress.end()
        for log, as_of_ms in zip(directories, NIGHTS, strict=True):
            if as_of_ms not in done:
                summary = run_nightly(log, warehouse, cluster=CLUSTER, as_of=as_of_ms, progress=progress)
                counts = counted(summary.groups, "group"), counted(summary.committed_offsets, "committed offset")
                common.say(f"{log}: {counted(summary.records_read, 'new record')}, {', '.join(counts)} as of {second(as_of_ms)}")


def _answer(number: int, question: Question, warehouse: str, of_cluster: list[str]) -> int:
    """Print a question, the command, and what the command prints; return its exit code."""
    from groupcoord_spark.cli.commands import main

    words = [*question.words, *of_cluster]
    print_lines(["", f"{number}. {question.question}", f"$ {command_line(*words, warehouse=warehouse)}"])
    sys.stdout.flush()
    try:
        main.main([*words, "--warehouse", warehouse])
    except SystemExit as ended:
        return int(ended.code or 0)
    return 0
