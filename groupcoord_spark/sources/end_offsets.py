"""Read log end offsets from a file, for the columns that the log of ``__consumer_offsets`` cannot fill.

docs/how-to/other-inputs.md lists the forms: lines of kafka-get-offsets or ``kcat -Q``, tables with a heading, and JSON.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

from groupcoord_spark.errors import UsageError
from groupcoord_spark.wording import counted

EndOffsets = Mapping[tuple[str, int], int]
"""Topic and partition -> log end offset."""

_TOPIC: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_KCAT_LINE: Final = re.compile(r"(\S+) \[([0-9]+)\] offset (-?[0-9]+)(?:: .*)?")
_SEPARATORS: Final = (":", ",", "\t", ";", None)
"""Between the columns of a line; None: blanks. No separator can be part of a topic's name."""
_END_NAMES: Final = ("logendoffset", "endoffset", "latestoffset", "latest", "highwatermark", "high", "end", "offset")
"""Names of the end offset in headings and JSON, without ``-``, ``_`` and blanks, in order of preference."""
_FIRST_TIME_MS: Final = 1_262_304_000_000
"""The year 2010. An offset in a fourth column that is smaller cannot be taken for a time in milliseconds."""
_EXPECTED_LINE: Final = "topic:partition:offset or topic,partition,offset"
_EXPECTED_JSON: Final = 'expected {"topic": {"partition": offset}} or [{"topic": ..., "partition": ..., "offset": ...}]'

_Entry = tuple[str, int, int | None]
"""Topic, partition and end offset; None where the partition has no end offset."""


class EndOffsetsSample(NamedTuple):
    """The content of a file of end offsets. ``remark`` is a sentence about invalid lines, or None."""

    offsets: EndOffsets
    remark: str | None = None


def read_end_offsets(path: str) -> EndOffsetsSample:
    """Read the end offsets in a file.

    Partitions without an end offset are left out: an empty offset (no leader), null, and each negative number (tools print -1, librdkafka
    -1001).

    Raises:
        UsageError: The file cannot be read, or nothing in it is understood.
    """
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as e:
        raise UsageError(f"{path} cannot be read as text: {e}.") from e
    document, not_json = _document_of(text)
    found = list(_line_entries(text) if document is None else _json_entries(document))
    not_understood = [what for what in found if isinstance(what, str)]
    entries = [entry for entry in found if not isinstance(entry, str)]
    if not_understood and not entries:
        raise UsageError(f"{path}{not_json or not_understood[0]}.")
    sentence = None
    if not_understood:
        of_all = f"{len(not_understood):,} of {counted(len(found), 'line' if document is None else 'part')}"
        sentence = f"{path}: {of_all} {'is' if len(not_understood) == 1 else 'are'} not used. The first one{not_understood[0]}."
    return EndOffsetsSample({(topic, partition): end for topic, partition, end in entries if end is not None and end >= 0}, sentence)


def checked_end_offsets(given: EndOffsets) -> EndOffsets:
    """Return a mapping of end offsets without negative ones. Raises UsageError for a mapping of another form."""
    for place, end in given.items():
        if not (isinstance(place, tuple) and [*map(type, place)] == [str, int] and type(end) is int):
            raise UsageError(
                f"end_offsets has {place!r}: {end!r}. Map (topic, partition) to the end offset, for example ('orders', 0): 1500."
            )
    return {place: end for place, end in given.items() if end >= 0}


def changed_at_ms(path: str) -> int:
    """Return the time of the file's last change, in epoch milliseconds: the time of the sample."""
    return Path(path).stat().st_mtime_ns // 1_000_000


def _line_entries(text: str) -> Iterator[_Entry | str]:
    """Yield the entry of each line, or the end of an error sentence about the line."""
    heading: tuple[str | None, Sequence[str]] | None = None
    is_first = True
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        if is_first and (heading := _heading_of(line)) is not None:
            is_first = False
            continue
        is_first = False
        if line.lstrip().startswith("{") and (document := _document_of(line)[0]) is not None:
            yield from _json_entries(document)
            continue
        entry = _entry_of_line(line, heading)
        yield f", line {number}: {line.strip()[:200]!r} is not {_EXPECTED_LINE}" if entry is None else entry


def _columns(line: str, separator: str | None) -> list[str]:
    return [part.strip().strip('"') for part in line.strip().split(separator)]


def _plain(name: str) -> str:
    return re.sub(r"[-_ ]", "", name.lower())


def _heading_of(line: str) -> tuple[str | None, Sequence[str]] | None:
    """Return the separator and the names of the columns of a heading, or None for another line."""
    for separator in _SEPARATORS:
        names = [_plain(name) for name in _columns(line, separator)]
        if "topic" in names and "partition" in names and not set(names).isdisjoint(_END_NAMES):
            return separator, names
    return None


def _entry_of_line(line: str, heading: tuple[str | None, Sequence[str]] | None) -> _Entry | None:
    if heading is not None:
        separator, names = heading
        values = _columns(line, separator)
        return _entry_of_object(dict(zip(names, values, strict=True))) if len(values) == len(names) else None
    if (printed := _KCAT_LINE.fullmatch(line.strip())) is not None:
        return _entry(printed[1], printed[2], printed[3])
    for separator in _SEPARATORS:
        match _columns(line, separator):
            case [topic, partition, end] if _TOPIC.fullmatch(topic):
                # GetOffsetShell --offsets N prints N offsets with commas between them, the newest first.
                return _entry(topic, partition, end.partition(",")[0])
            case [topic, partition, end, time] if _TOPIC.fullmatch(topic) and (not time or _is_time(time)):
                return _entry(topic, partition, end)
    return None


def _is_time(text: str) -> bool:
    if text.isdecimal():
        return int(text) >= _FIRST_TIME_MS
    with suppress(ValueError):
        return datetime.fromisoformat(text) is not None
    return False


def _entry(topic: Any, partition: Any, end: Any) -> _Entry | None:
    """Return the entry of three values as they are in a file, or None if they do not form one."""
    if isinstance(end, Mapping):
        end = None if end.get("error") else _end_in(end)
    is_number = isinstance(end, int) and not isinstance(end, bool)
    if isinstance(end, str) and re.fullmatch(r"\s*(?:-?[0-9]{1,19})?\s*|-", end):
        end, is_number = int(end) if end.strip(" -") else None, True
    if not isinstance(topic, str) or isinstance(partition, bool) or not str(partition).isdecimal() or not (is_number or end is None):
        return None
    return topic, int(partition), end


def _end_in(values: Mapping[str, Any]) -> Any:
    """Return the end offset among named values, or an empty tuple, which ``_entry`` refuses."""
    of_plain = {_plain(name): value for name, value in values.items()}
    return next((of_plain[name] for name in _END_NAMES if name in of_plain), ())


def _entry_of_object(values: Mapping[str, Any]) -> _Entry | None:
    of_plain = {_plain(name): value for name, value in values.items()}
    return _entry(of_plain.get("topic"), of_plain.get("partition"), None if of_plain.get("error") else _end_in(values))


def _document_of(text: str) -> tuple[Any, str | None]:
    """Return the text as a JSON document, or None with the end of an error sentence if it only begins like one."""
    if not text.lstrip().startswith(("{", "[")):
        return None, None
    try:
        return json.loads(text), None
    except json.JSONDecodeError as error:
        return None, f", line {error.lineno}: not JSON: {error.msg}; {_EXPECTED_JSON}"


def _json_entries(document: Any) -> Iterator[_Entry | str]:
    """Yield the entry of each partition in a JSON document, or the end of an error sentence about the part."""
    for what, entry in _entries_in(document):
        yield f": {_EXPECTED_JSON}, not {json.dumps(what)[:200]}" if entry is None else entry


def _entries_in(document: Any) -> Iterable[tuple[Any, _Entry | None]]:
    """Yield each part of a JSON document that stands for a partition, with its entry."""
    match document:
        case list():
            for part in document:
                yield from _entries_in(part) if isinstance(part, Mapping) else [(part, None)]
        case {"topic": str() as topic, "partitions": list() as partitions}:
            for part in partitions:
                yield part, _entry_of_object({**part, "topic": topic}) if isinstance(part, Mapping) else None
        case {"topic": str(), "partition": _}:
            yield document, _entry_of_object(document)
        case Mapping():
            for topic, partitions in document.items():
                if not isinstance(partitions, Mapping):
                    yield {topic: partitions}, None
                    continue
                for partition, end in partitions.items():
                    if partition != "topic":  # kcat repeats the name of the topic
                        yield {topic: {partition: end}}, _entry(topic, partition, end)
        case _:
            yield document, None
