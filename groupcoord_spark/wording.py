"""Numbers, lists and commands in sentences."""

import re
import shlex
import textwrap
from collections.abc import Iterator, Sequence


def command_line(*words: str, warehouse: str, cluster: str | None = None) -> str:
    """Return a command of ours as a shell takes it, with the warehouse and the cluster that it is about.

    Every command that another command, an error or the report names is made here.
    """
    of_cluster = ["--cluster", cluster] if cluster is not None else []
    return " ".join(["groupcoord", *map(shell_word, [*words, "--warehouse", warehouse, *of_cluster])])


def shell_word(text: str) -> str:
    """Return a text as one word for bash, zsh and ksh, without a character on which a terminal acts.

    No command line can hold NUL. ``?`` in its place makes a pattern, which the options for groups take.
    """
    if text.isprintable():
        # An SQL text is easier to read in double quotes than with each ' as '"'"'.
        return f'"{text}"' if "'" in text and not _ACTIVE_IN_QUOTES & set(text) else shlex.quote(text)
    return "$'" + "".join(c if c.isprintable() and c not in "\\'" else _SHELL_ESCAPES.get(c) or _escape(ord(c)) for c in text) + "'"


def command_lines(command: str, width: int) -> Iterator[str]:
    """Break a command into lines that a shell takes as they are: each but the last ends with a backslash, or within a text of SQL.

    A word longer than ``width`` stays whole unless it is an SQL text in double quotes without a blank in a literal.
    """
    broken: list[str] = []
    for word in _OPTIONS_AND_WORDS.findall(command):
        if broken and len(broken[-1]) + len(word) + 1 <= width - 2:
            broken[-1] += f" {word}"
        else:
            broken.append(word)
    for number, line in enumerate(broken, 1):
        is_sql = line.startswith('"') and _BLANK_IN_LITERAL.search(line) is None
        *parts, last = textwrap.wrap(line, width - 2, break_long_words=False, break_on_hyphens=False) if is_sql else [line]
        yield from parts
        yield f"{last} \\" if number < len(broken) else last


_WORD = r"""(?:"[^"]*"|\$'(?:[^'\\]|\\.)*'|'[^']*'|[^\s"'])+"""
_OPTIONS_AND_WORDS = re.compile(rf"--\S+ (?!--){_WORD}|{_WORD}")
"""An option stays on one line with its value."""
_BLANK_IN_LITERAL = re.compile(r"'[^' ]* [^']*'(?=[^']*(?:'[^']*'[^']*)*$)")
_ACTIVE_IN_QUOTES = frozenset('"$`\\!')
_SHELL_ESCAPES = {"\\": "\\\\", "'": "\\'", "\0": "?"}


def _escape(code: int) -> str:
    return f"\\x{code:02x}" if code < 0x80 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def counted(number: int, noun: str) -> str:
    """``1 offset``, ``3 groups``, ``1,000 batches``: the number, and the noun in its singular or plural."""
    plural = f"{noun}es" if noun.endswith(("ch", "x", "s")) else f"{noun}s"
    return f"{number:,} {noun if number == 1 else plural}"


def first_of(texts: Sequence[str], most: int | None = 3, *, count: int | None = None, noun: str = "") -> str:
    """Return ``a, b, c and 2 more``: the first texts and the number of the remaining ones.

    ``most`` limits the named texts; None names all. ``count`` is the total if ``texts`` is incomplete. ``noun`` is the plural noun.
    """
    named = texts[:most]
    number_left = (len(texts) if count is None else count) - len(named)
    more = counted(number_left, f"more {noun}") if noun else f"{number_left:,} more"
    return f"{', '.join(named)} and {more}" if number_left > 0 and most is not None else ", ".join(named)
