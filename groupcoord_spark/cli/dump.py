"""``groupcoord dump``: the records of the offsets topic as lines of JSON."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

import click

from groupcoord_spark.cli.options import Common, Moment, command, common_options_without_warehouse
from groupcoord_spark.cli.render import printable, say, terminal_json_bytes
from groupcoord_spark.errors import UsageError
from groupcoord_spark.wording import counted

if TYPE_CHECKING:
    from groupcoord_spark.dump.json_lines import Counts
    from groupcoord_spark.log import Chunk, Lost, PlacedDoubt

MOST_SORTED_BYTES: Final = 1 << 30
"""The most bytes of rows of tables and lines of JSON, which dump sorts in memory."""

EARLIEST_MS: Final = 100_000_000_000
"""A plain number below this (March 1973, long before Kafka) is refused: it is a record offset without its word."""


class Border(click.ParamType):  # type: ignore[type-arg]
    """Where a range of records begins or ends: ``offset:N``, or a TIME. The command gets ("offset", N) or ("time", milliseconds)."""

    name = "TIME|offset:N"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, int]:
        if isinstance(value, tuple):
            return value
        text = str(value).strip()
        if text.lower().startswith("offset:"):
            number = text[len("offset:") :].strip()
            if not re.fullmatch("[0-9]{1,19}", number):
                self.fail(f"{value!r} is not a record offset. Write for example offset:441686.", param, ctx)
            return "offset", int(number)
        is_number = text.isascii() and text.isdecimal()
        try:
            milliseconds = Moment(is_border=True).convert(text, param, ctx)
        except click.BadParameter as e:
            if is_number:
                self.fail(f"{e.message} Write offset:{text} for a record offset.", param, ctx)
            raise
        if is_number and milliseconds < EARLIEST_MS:
            self.fail(f"{value!r} as a time lies before 1974. Write offset:{text} for a record offset.", param, ctx)
        return "time", milliseconds


class KeyTypeParameter(click.ParamType):  # type: ignore[type-arg]
    """A record type: the number its keys begin with, or Kafka's name of its message. The command gets the number."""

    name = "TYPE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        from groupcoord_spark.protocol import RECORD_TYPES

        text = str(value).strip()
        if re.fullmatch(r"[0-9]{1,5}", text) and int(text) <= 32767:
            return int(text)
        named = {_plain(record_type.key.name): number for number, record_type in RECORD_TYPES.items()}
        if _plain(text) not in named:
            names = ", ".join(f"{number} {record_type.key.name.removesuffix('Key')}" for number, record_type in RECORD_TYPES.items())
            self.fail(f"{value!r} is not a record type. Types are {names}.", param, ctx)
        return named[_plain(text)]


@command(epilog="Example: groupcoord dump tests/golden/classic-modern/logs --type OffsetCommit --from 2026-11-01T00:00:00Z | head -3")
@click.argument("inputs", metavar="INPUT...", nargs=-1, required=True)
@click.option("--group", "groups", metavar="G", multiple=True, help="Only this group, and the markers of its transactions. Repeatable.")
@click.option(
    "--type",
    "key_types",
    type=KeyTypeParameter(),
    multiple=True,
    help="Only records of this type: a number, or Kafka's name (OffsetCommit, GroupMetadata and so on). Repeatable.",
)
@click.option("--from", "first", type=Border(), metavar="TIME|offset:N", help="Only records at or after this time, or record offset.")
@click.option("--to", "end", type=Border(), metavar="TIME|offset:N", help="Only records before this time, or record offset.")
@click.option(
    "--redact", is_flag=True, help="Replace hosts, client, member and instance ids, and metadata by names that mean nothing; no bytes."
)
@click.option(
    "--bytes",
    "with_bytes",
    is_flag=True,
    help="Add key_base64, value_base64 and the batch's leader_epoch to every line: then `nightly` loses nothing.",
)
@click.option(
    "--output",
    "form",
    type=click.Choice(["json", "text"]),
    help="Lines of JSON, or text as Kafka's formatters print MirrorMaker's records. [default: text for MirrorMaker's topics, else json]",
)
@click.option(
    "--broker-version",
    metavar="V",
    help="Print records of __transaction_state as this release does: since 4.4 with the name of the state. [default: 4.3]",
)
@common_options_without_warehouse
def dump(
    common: Common,
    inputs: tuple[str, ...],
    groups: tuple[str, ...],
    key_types: tuple[int, ...],
    first: tuple[str, int] | None,
    end: tuple[str, int] | None,
    redact: bool,
    with_bytes: bool,
    form: str | None,
    broker_version: str | None,
) -> None:
    """Print each record as one line of JSON, in log order, as Kafka's formatters do.

    INPUT is what `groupcoord nightly` takes, but for kafka://; or a directory or a file of the other logs that Kafka keeps for itself:
    __share_group_state-N, __transaction_state-N, __cluster_metadata-0 with its .checkpoint files, and MirrorMaker's checkpoints and offset
    syncs (ALIAS.checkpoints.internal-0, mm2-offset-syncs.ALIAS.internal-0), printed as CheckpointFormatter and OffsetSyncFormatter do. A
    record at which these fail is a line of JSON.

    Markers have "control":"COMMIT" or "ABORT". A record that does not decode
    has "data":null, a reason, and its key and value in base64. stderr has a line for each damaged stretch of the log.

    --from and --to take offset:N for a record offset. Anything else is a time: now, ISO 8601 (UTC unless it says otherwise) or epoch
    milliseconds. Both may be mixed: --from offset:1000 --to 2026-11-20.

    --redact keeps groups, topics and racks. A replaced name is the same all through a dump, so that lines join; the next dump has others.
    """
    from groupcoord_spark.coordinator.releases import release_named
    from groupcoord_spark.dump import other_topics
    from groupcoord_spark.dump.json_lines import Counts, JsonLines, Selection
    from groupcoord_spark.dump.redaction import Redaction

    if redact and with_bytes:
        raise UsageError("--redact hides what the bytes hold, and --bytes shows them. Leave one of them out.")
    if first is not None and end is not None and first[0] == end[0] and end[1] <= first[1]:
        raise UsageError("--to is not after --from: no record lies between them.")
    borders = (("first", first), ("end", end))
    bounds = {f"{name}_{'offset' if border[0] == 'offset' else 'ms'}": border[1] for name, border in borders if border}
    selection = Selection(frozenset(groups), frozenset(key_types), **bounds)
    counts, redaction = Counts(), Redaction() if redact else None
    remarks = _Remarks(quiet=common.quiet)
    out = sys.stdout.buffer
    if other_topics.topic_of(inputs[0]) is not None:
        if redact or groups or key_types:
            raise UsageError("--group, --type and --redact are for records of the offsets topic; this INPUT is of another. Leave them out.")
        release = None if broker_version is None else release_named(broker_version)
        partitions = other_topics.read_partitions(inputs, selection, counts, with_bytes=with_bytes, form=form, release=release)
    elif broker_version is not None:
        raise UsageError("--broker-version is for records of __transaction_state; this INPUT is of the offsets topic. Leave it out.")
    elif form == "text":
        raise UsageError("--output text is for records of MirrorMaker's topics; this INPUT is of the offsets topic. Leave it out.")
    else:
        partitions = (
            (JsonLines(offsets_partition, selection, counts, redaction, with_bytes=with_bytes), chunks)
            for offsets_partition, chunks in _partitions(inputs, remarks)
        )
    for lines, chunks in partitions:
        for chunk in chunks:
            for block in lines.blocks(chunk):
                out.write(terminal_json_bytes(block))
            remarks.report(chunk.lost)
            remarks.report(doubt for doubt in chunk.doubts if doubt.code not in lines.expected_doubts)
    out.flush()
    remarks.sum_up(counts)


def _partitions(inputs: tuple[str, ...], remarks: _Remarks) -> Iterator[tuple[int, Iterable[Chunk]]]:
    """Yield each offsets partition with its chunks, in offset order."""
    from groupcoord_spark.sources.inputs import InputKind, kind_of

    kind = kind_of(inputs)
    if kind in (InputKind.KAFKA, InputKind.ADMIN):
        raise UsageError(f"dump reads files, and {inputs[0]} is a cluster. `groupcoord nightly {inputs[0]}` reads it into tables.")
    if kind is InputKind.SEGMENTS:
        from groupcoord_spark.log import plan_logs, read_segment
        from groupcoord_spark.storage.held_files import HeldFiles

        with HeldFiles() as held_files:
            plan = plan_logs(inputs, held=held_files)
            remarks.report(plan.doubts)
            for partition in plan.partitions:
                yield partition.offsets_partition, chain.from_iterable(map(read_segment, partition.segments))
        return
    from groupcoord_spark.pipeline.read.rows import CHUNK_ROWS, chunks_by_partition, row_files, sorted_table
    from groupcoord_spark.storage.location import shown as without_secrets

    files = row_files(kind, inputs)
    remarks.say(files.remarks)
    table = sorted_table(files, MOST_SORTED_BYTES)
    if table is None:
        raise UsageError(
            f"{', '.join(map(without_secrets, inputs))}: rows have to be put in order first, and these have more than"
            f" {MOST_SORTED_BYTES >> 20} MB. Read them with `groupcoord nightly`: its tables offset_commits and group_records hold them."
        )
    for piece, chunks in chunks_by_partition(table.to_batches(max_chunksize=CHUNK_ROWS), ", ".join(map(without_secrets, inputs))):
        yield piece.offsets_partition, chunks


def _plain(name: str) -> str:
    """OffsetCommitKey, OffsetCommitValue, OffsetCommit, offset_commit and OFFSET_COMMIT are one name."""
    return re.sub(r"(key|value)$", "", re.sub(r"[_-]", "", name.lower()))


class _Remarks:
    """Prints lost and doubtful places of the log on stderr, line by line, and the counts at the end."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._counts: Counter[str] = Counter()

    def say(self, sentences: Iterable[str]) -> None:
        """Print sentences on stderr, except with ``--quiet``."""
        for sentence in () if self._quiet else sentences:
            say(sentence)

    def report(self, reports: Iterable[Lost | PlacedDoubt]) -> None:
        """Prints a line for each lost or doubtful range."""
        from groupcoord_spark.log import CODES, DamageKind
        from groupcoord_spark.sources.rows import ROW_CODES

        for lost_or_doubt in reports:
            kind = (CODES.get(lost_or_doubt.code) or ROW_CODES[lost_or_doubt.code]).kind
            if kind is DamageKind.LOST:
                self._counts["lost"] += 1
            elif kind is DamageKind.WARN:
                self._counts["doubted"] += 1
            if not self._quiet:
                place = f" at byte {lost_or_doubt.position:,}" if lost_or_doubt.size else ""
                say(printable(f"{lost_or_doubt.source}{place}: {lost_or_doubt.detail} ({lost_or_doubt.code})"))

    def sum_up(self, counts: Counts) -> None:
        """Print the number of lines and of faults."""
        if self._quiet:
            return
        parts = [counted(counts.lines, "record")]
        if counts.undecoded:
            reasons = ", ".join(f"{reason} {count:,}" for reason, count in counts.undecoded.most_common())
            parts.append(f"{counts.undecoded.total():,} of them do not decode ({reasons})")
        if self._counts["lost"]:
            parts.append(f"{counted(self._counts['lost'], 'place')} of the log {_are(self._counts['lost'])} lost")
        if self._counts["doubted"]:
            parts.append(f"{counted(self._counts['doubted'], 'place')} {_are(self._counts['doubted'])} read with a doubt")
        if counts.without_timestamp:
            have = "has" if counts.without_timestamp == 1 else "have"
            are = _are(counts.without_timestamp)
            parts.append(f"{counted(counts.without_timestamp, 'record')} {have} no timestamp and {are} in no range of time")
        if counts.below_log_start:
            parts.append(f"{counted(counts.below_log_start, 'record')} below the log start {_are(counts.below_log_start)} left out")
        say("; ".join(parts) + ".")


def _are(number: int) -> str:
    return "is" if number == 1 else "are"
