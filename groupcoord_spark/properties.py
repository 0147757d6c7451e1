"""Reads files of Java properties as brokers and Kafka's clients read them."""

import re
from collections.abc import Mapping
from itertools import chain
from pathlib import Path
from typing import Final

from groupcoord_spark.errors import UsageError

# A backslash escapes the following character: a separator, or the line end at the end of a line.
_JOINED: Final = re.compile(r"(?<!\\)((?:\\\\)*)\\\r?\n[ \t\f]*")
_PAIR: Final = re.compile(r"((?:\\.|[^\\=:\s])*)\s*[=:]?\s*(.*)")
_ESCAPE: Final = re.compile(r"\\(u[0-9a-fA-F]{4}|.?)")
_MEANT: Final = {"n": "\n", "t": "\t", "r": "\r", "f": "\f"}


def read_properties(path: str, what: str) -> dict[str, str]:
    """Read a properties file: lines ``name=value``, ``name: value`` or ``name value``. The last value of a name counts.

    what: the file's name in error sentences. Raises UsageError for a file that cannot be read or is not UTF-8.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as e:
        raise UsageError(f"{what} {path} cannot be read: {e.strerror if isinstance(e, OSError) else 'it is not UTF-8 text'}.") from e
    lines = (line.strip() for line in _JOINED.sub(r"\1", text).split("\n"))
    pairs = (_PAIR.fullmatch(line) for line in lines if line and line[0] not in "#!")
    return {_plain(pair[1]): _plain(pair[2]) for pair in pairs if pair is not None}


def _plain(text: str) -> str:
    return _ESCAPE.sub(lambda match: chr(int(match[1][1:], 16)) if len(match[1]) == 5 else _MEANT.get(match[1], match[1]), text)


def without_values(text: str, settings: Mapping[str, str]) -> str:
    """Replace each value of the settings, and each word of a JAAS configuration, by an ellipsis."""
    words = (re.split(r"""[\s;="']+""", value) for name, value in settings.items() if name.endswith("jaas.config"))
    for value in sorted(filter(None, chain(settings.values(), *words)), key=len, reverse=True):
        text = text.replace(value, "…")
    return text
