"""What the commands print: rows on stdout as Kafka's tools align them, as JSON (one object a row) or as CSV, and sentences on stderr.

Group ids, topics, hosts and metadata are texts that clients chose. No character on which a terminal acts is printed as it is: the table,
the CSV and the sentences have its escape, and JSON has a JSON escape, which keeps the value exact.
"""

import codecs
import csv
import io
import json
import os
import re
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, Literal, TextIO

import click

from groupcoord_spark.errors import UsageError

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

NOTHING = "-"
"""What Kafka's tools print in place of a missing value."""

_IS_WIDE: Final = "groupcoord_spark.wide"
"""The key in click's ``ctx.meta`` that says that --wide was given."""

_NOT_PLAIN_ASCII: Final = re.compile(r"[^\n -~]+")
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r", "\n")
"""A spreadsheet reads a cell that begins with one of these as a formula, or drops the character and looks at the next one."""
_NEGATIVE_NUMBER: Final = re.compile(r"-[0-9]+(\.[0-9]+)?")


def prepare_streams() -> None:
    """Makes stdout and stderr accept every text: characters that their encoding lacks are escaped, and a closed stream drops everything."""
    sys.stdout = _that_takes_every_text(sys.stdout)
    sys.stderr = _that_takes_every_text(sys.stderr)


def _that_takes_every_text(stream: TextIO | None) -> TextIO:
    if stream is None:  # closed by the caller of the command (>&-, 2>&-)
        return Path(os.devnull).open("w", encoding="utf-8")
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(errors="backslashreplace")
    return stream


def printable(text: str) -> str:
    """Return the text with an escape (``\\x1b``, ``\\u202e``) for every character that is not printable: terminals act on some of them."""
    return text if text.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def say(sentence: str) -> None:
    """Prints lines on stderr. A stderr that cannot be written to (its reader has gone, its disk is full) stops no work."""
    with suppress(OSError):
        print("\n".join(map(printable, sentence.split("\n"))), file=sys.stderr, flush=True)


def cell_text(value: object) -> str:
    """Format a value as a cell in characters that stdout can encode, so that columns stay aligned."""
    if value is None:
        return NOTHING
    text = printable(str(value))
    if text.isascii() or _stdout_is_unicode():
        return text
    return text.encode(sys.stdout.encoding, "backslashreplace").decode(sys.stdout.encoding)


def _stdout_is_unicode() -> bool:
    return codecs.lookup(sys.stdout.encoding or "utf-8").name.startswith("utf")


def terminal_json(text: str) -> str:
    """Lines of JSON that say the same, with JSON's escape for every character that a terminal acts on or that stdout cannot take."""
    if text.isascii() and "\x7f" not in text:
        return text
    keeps_letters = _stdout_is_unicode()

    def escaped(match: re.Match[str]) -> str:
        if keeps_letters and match[0].isprintable():
            return match[0]
        return "".join(c if keeps_letters and c.isprintable() else json.dumps(c)[1:-1] for c in match[0])

    return _NOT_PLAIN_ASCII.sub(escaped, text)


def terminal_json_bytes(text: memoryview) -> bytes | memoryview:
    """``terminal_json`` of UTF-8, as UTF-8. Lines in plain ASCII are not copied."""
    import numpy as np

    return text if np.frombuffer(text, np.uint8).max(initial=0) < 0x7F else terminal_json(str(text, "utf-8")).encode()


def moment(milliseconds: int | None) -> str | None:
    """Format a time as ISO 8601 in UTC, or as milliseconds outside of the years 1 to 9999; None stays None."""
    if milliseconds is None:
        return None
    try:
        return (_EPOCH + timedelta(milliseconds=milliseconds)).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    except OverflowError:
        return str(milliseconds)


def second(milliseconds: int) -> str:
    """Format a time to the second as ISO 8601 in UTC."""
    return (_EPOCH + timedelta(milliseconds=milliseconds)).isoformat(timespec="seconds").replace("+00:00", "Z")


def lines(
    titles: Sequence[str],
    rows: Iterable[Sequence[object]],
    least_widths: Sequence[int | None] | None = None,
    colours: Sequence[str | None] | None = None,
) -> list[str]:
    """Return a line of titles and one for each row, with left-aligned cells, fitted to the terminal's width.

    Args:
        least_widths: A column is as wide as its widest cell, and at least this, or None: not padded (Kafka's last column). None for all:
            as wide as the title, and the last one not padded.
        colours: A colour for each row that is to stand out on a terminal, None for the others; None: no row stands out.
    """
    cells = [tuple(map(cell_text, row)) for row in rows]
    limit = terminal_width()
    if limit is not None:
        from groupcoord_spark.cli.terminal import fitted_table

        table = fitted_table(titles, cells, limit)
        paint = colours is not None and "NO_COLOR" not in os.environ
        return [
            _Coloured(click.style(printable(line), fg=colour)) if paint and colour is not None else line
            for lines_of_row, colour in zip(table.rows, [None, *(colours or [None] * len(cells))], strict=True)
            for line in lines_of_row
        ]
    widths: Sequence[int | None] = least_widths if least_widths is not None else [*map(len, titles[:-1]), None]
    if cells:
        columns = zip(*cells, strict=True)
        widths = [w if w is None else max(w, max(map(len, column))) for w, column in zip(widths, columns, strict=True)]
    form = _form(tuple(widths))
    return [form % tuple(titles), *[form % row for row in cells]]


def lines_or_blocks(titles: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    """Return ``lines``, or where a row would need more than two of them a block for each row, with a line for each column."""
    limit, cells = terminal_width(), [tuple(map(cell_text, row)) for row in rows]
    if limit is None:
        return lines(titles, cells)
    from groupcoord_spark.cli.terminal import LEAST_SENTENCE_WIDTH, fitted_table, wrapped_text

    table = fitted_table(titles, cells, limit)
    if table.lines_of_row <= 2 or not cells:
        return [line for row in table.rows for line in row]
    margin = max(map(len, titles)) + 2
    blocks: list[str] = []
    for row in cells:
        for title, cell in zip(titles, row, strict=True):
            line, *more_lines = wrapped_text(cell, max(limit - margin, LEAST_SENTENCE_WIDTH))
            blocks += [f"{title.ljust(margin)}{line}".rstrip(), *(f"{' ' * margin}{part}" for part in more_lines)]
        blocks.append("")
    return blocks[:-1]


def show_all_columns_whole() -> None:
    """Tables of this command are as wide as their cells, also on a terminal (--wide)."""
    click.get_current_context().meta[_IS_WIDE] = True


def terminal_width() -> int | None:
    """Return the width that tables must fit, or None if stdout is not a terminal or --wide was given."""
    context = click.get_current_context(silent=True)
    if not sys.stdout.isatty() or (context is not None and context.meta.get(_IS_WIDE)):
        return None
    return shutil.get_terminal_size().columns


def wrapped(text: str) -> list[str]:
    """Wrap a sentence to the terminal; return one line if stdout is not a terminal, or with --wide."""
    limit = terminal_width()
    if limit is None:
        return [text]
    from groupcoord_spark.cli.terminal import wrapped_text

    return wrapped_text(printable(text), limit)


@lru_cache(maxsize=1024)
def _form(widths: tuple[int | None, ...]) -> str:
    return " ".join("%s" if width is None else f"%-{width}s" for width in widths)


class JsonText(str):
    """A value that is JSON already, as DuckDB wrote it: numbers keep all their digits."""

    __slots__ = ()


def write_records(output: Literal["json", "csv"], names: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Write rows for programs: JSON objects, one for each line, or CSV with a header. Missing values are null or empty."""
    if output == "json":
        print_lines(_json_row(names, row) for row in rows)
        return
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([_csv_cell(name) for name in names])
    writer.writerows([_csv_cell(value) for value in row] for row in rows)
    print_text(text.getvalue().removesuffix("\n"))


def _json_row(names: Sequence[str], row: Sequence[Any]) -> str:
    if not any(isinstance(value, JsonText) for value in row):
        return _json_text(dict(zip(names, row, strict=True)))
    cells = (value if isinstance(value, JsonText) else _json_text(value) for value in row)
    return "{" + ", ".join(f"{_json_text(name)}: {terminal_json(cell)}" for name, cell in zip(names, cells, strict=True)) + "}"


def _json_text(value: object) -> str:
    return terminal_json(json.dumps(value, ensure_ascii=False))


def _csv_cell(value: Any) -> Any:
    """Format a value as a CSV cell: true or false, a list with commas, an object as JSON.

    A text that a spreadsheet would run as a formula begins with a quote sign, as OWASP advises; numbers stay numbers.
    """
    if value is None or (isinstance(value, int | float) and not isinstance(value, bool)):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return _json_text(value)
    text = ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
    is_formula = text.startswith(_FORMULA) and not _NEGATIVE_NUMBER.fullmatch(text)
    return f"'{printable(text)}" if is_formula else printable(text)


def print_lines(texts: Iterable[str]) -> None:
    """Print lines on stdout. Each text is one line: what a terminal acts on within it, line breaks too, has its escape.

    Every command prints through this function, through ``print_text`` or through ``print_exactly``.
    """
    whole = "\n".join(text if isinstance(text, _Coloured) else printable(text) for text in texts)
    if whole:
        try:
            sys.stdout.write(f"{whole}\n")
        except BrokenPipeError:
            context = click.get_current_context(silent=True)
            if context is None or (context.params.get("fail_on") is None and context.info_name != "verify"):
                raise
            drop_what_is_left_on_stdout()  # the exit code is the answer, and it is not known yet


def drop_what_is_left_on_stdout() -> None:
    """Send the rest of the output to the null device, after the reader of a pipe has closed it."""
    with suppress(OSError):  # a stdout without a file: nothing is flushed when the process ends
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def write_whole(file: Path, text: str) -> None:
    """Replace a file so that no reader sees it half written. Raises UsageError if it cannot be written."""
    with _beside(file) as beside:
        beside.write_text(text, encoding="utf-8")
        beside.replace(file)


def refuse_unwritable(file: Path) -> None:
    """Raise UsageError if ``write_whole`` cannot write the file, before the work that the file would be about."""
    with _beside(file) as beside:
        beside.touch()


@contextmanager
def _beside(file: Path) -> Iterator[Path]:
    beside = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        yield beside
    except OSError as e:
        raise UsageError(f"{file} cannot be written: {e.strerror}. Name another file.") from e
    finally:
        with suppress(OSError):
            beside.unlink()


def print_text(text: str) -> None:
    """Print a text of several lines on stdout, such as a script or a statement."""
    print_lines(text.split("\n"))


def print_exactly(text: str) -> None:
    """Print a text as UTF-8 in every locale, for a program that needs each name as it is. A terminal gets what it can show."""
    if sys.stdout.isatty():
        print_text(text.removesuffix("\n"))
        return
    sys.stdout.flush()
    sys.stdout.buffer.write(text.encode("utf-8"))


class _Coloured(str):
    """A line with the escape sequences of a colour, whose text has none."""

    __slots__ = ()
