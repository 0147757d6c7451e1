r"""Regular expressions of RE2J. The broker uses it to match the topics of consumer groups (KIP-848), as RE2 reads them.

Neither has backreferences, look-around, possessive quantifiers or atomic groups, so that the time of a match grows with the length of the
text alone; the broker refuses such expressions with INVALID_REGULAR_EXPRESSION. Where RE2 differs from RE2J:

- ``\C``, one byte, is part of RE2 alone, and is refused here as RE2J refuses it.
- ``{+``: to RE2J a brace that counts nothing is a character that cannot be repeated, to RE2 it is a character like any other.
- ``\é``: RE2 refuses a backslash before a character that is not ASCII, RE2J reads the character.
- RE2 refuses an expression whose program needs more than 8 MiB; RE2J has no such limit.
- An expression with more than 1,000 named groups is refused here: RE2 needs memory that grows with the square of the number of groups.
"""

import re
from functools import lru_cache
from typing import Any, Final

import re2

_QUOTED_OR_ESCAPED: Final = re.compile(r"\\Q.*?(?:\\E|$)|\\[^CQ]", re.DOTALL)
_OPTIONS: Final = re2.Options()
_OPTIONS.log_errors = False
_OPTIONS.never_capture = True  # the broker asks only whether a topic matches; RE2 captures named groups nonetheless
_MOST_NAMED_GROUPS: Final = 1000


class InvalidExpressionError(ValueError):
    """Raised when a text is not an expression of RE2J."""


@lru_cache(maxsize=256)
def parsed(expression: str) -> Any:
    """Compile the expression. Raises InvalidExpressionError with the reason."""
    if r"\C" in _QUOTED_OR_ESCAPED.sub("", expression):
        raise InvalidExpressionError(r"invalid escape sequence: \C")
    try:
        compiled = re2.compile(expression, _OPTIONS)
    except UnicodeEncodeError as e:
        raise InvalidExpressionError("half of a surrogate pair") from e
    except re2.error as e:
        (reason,) = e.args
        raise InvalidExpressionError(reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)) from e
    if compiled.groups > _MOST_NAMED_GROUPS:
        raise InvalidExpressionError(f"more than {_MOST_NAMED_GROUPS:,} groups with names")
    return compiled


def matches(expression: str, text: str) -> bool:
    """Return whether the expression matches the whole text. Raises InvalidExpressionError."""
    return parsed(expression).fullmatch(text) is not None
