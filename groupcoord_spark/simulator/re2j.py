r"""Regular expressions of RE2J, in which the broker matches the topics of consumer groups (KIP-848).

RE2J has no backreferences, no look-around, no possessive quantifiers and no atomic groups; the broker refuses them with
INVALID_REGULAR_EXPRESSION. An expression is a function from positions of a text to the positions after a match, so that the time of a match
never explodes. Texts are names of topics, which are ASCII: of a script (``\p{Greek}``) only the ASCII characters are known.
"""

from __future__ import annotations

import string
import unicodedata
from collections.abc import Callable, Set
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_MOST_REPETITIONS: Final = 1000
_LARGEST_CODE: Final = 0x10FFFF
_FLAGS: Final = "imsU"
_CATEGORIES: Final = _names("C Cc Cf Co Cs L Ll Lm Lo Lt Lu M Mc Me Mn N Nd Nl No P Pc Pd Pe Pf Pi Po Ps S Sc Sk Sm So Z Zl Zp Zs")
_SCRIPTS: Final = _names(
    """
    Arabic Armenian Avestan Balinese Bamum Batak Bengali Bopomofo Brahmi Braille Buginese Buhid Canadian_Aboriginal Carian Cham
    Cherokee Common Coptic Cuneiform Cypriot Cyrillic Deseret Devanagari Egyptian_Hieroglyphs Ethiopic Georgian Glagolitic Gothic
    Greek Gujarati Gurmukhi Han Hangul Hanunoo Hebrew Hiragana Imperial_Aramaic Inherited Inscriptional_Pahlavi Inscriptional_Parthian
    Javanese Kaithi Kannada Katakana Kayah_Li Kharoshthi Khmer Lao Latin Lepcha Limbu Linear_B Lisu Lycian Lydian Malayalam Mandaic
    Meetei_Mayek Mongolian Myanmar New_Tai_Lue Nko Ogham Ol_Chiki Old_Italic Old_Persian Old_South_Arabian Old_Turkic Oriya Osmanya
    Phags_Pa Phoenician Rejang Runic Samaritan Saurashtra Shavian Sinhala Sundanese Syloti_Nagri Syriac Tagalog Tagbanwa Tai_Le
    Tai_Tham Tai_Viet Tamil Telugu Thaana Thai Tibetan Tifinagh Ugaritic Unknown Vai Yi
    """
)
_WORD: Final = frozenset(string.ascii_letters + string.digits + "_")
_PERL: Final = {"d": frozenset(string.digits), "s": frozenset("\t\n\f\r "), "w": _WORD}
_POSIX: Final = {
    "alnum": frozenset(string.ascii_letters + string.digits),
    "alpha": frozenset(string.ascii_letters),
    "ascii": frozenset(map(chr, range(128))),
    "blank": frozenset("\t "),
    "cntrl": frozenset(map(chr, (*range(32), 127))),
    "digit": frozenset(string.digits),
    "graph": frozenset(map(chr, range(33, 127))),
    "lower": frozenset(string.ascii_lowercase),
    "print": frozenset(map(chr, range(32, 127))),
    "punct": frozenset(string.punctuation),
    "space": frozenset("\t\n\v\f\r "),
    "upper": frozenset(string.ascii_uppercase),
    "word": _WORD,
    "xdigit": frozenset(string.hexdigits),
}
_ESCAPES: Final = {"a": "\a", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_FOLDS: Final = {"\u212a": "k", "\u017f": "s"}
"""Characters beyond ASCII that are the same as an ASCII letter if case does not matter."""

Positions = Set[int]
Matcher = Callable[[str, Positions], Positions]
IsIn = Callable[[str], bool]


class InvalidExpressionError(ValueError):
    """Raised for a text that is no expression of RE2J."""


@lru_cache(maxsize=256)
def parsed(expression: str) -> Matcher:
    """The expression. Raises InvalidExpressionError."""
    parser = _Parser(expression)
    alternatives = parser.alternatives()
    if not parser.is_at_end:
        raise InvalidExpressionError("unexpected )")
    return alternatives.matcher


def matches(expression: str, text: str) -> bool:
    """Whether the expression matches the whole text. Raises InvalidExpressionError."""
    return len(text) in parsed(expression)(text, frozenset((0,)))


@dataclass(frozen=True, slots=True)
class _Node:
    """A part of an expression. repetitions: how often the most repeated part in it may be repeated by numbers."""

    matcher: Matcher
    repetitions: int = 1


@dataclass(slots=True)
class _Parser:
    text: str
    at: int = 0
    flags: frozenset[str] = frozenset()
    names: set[str] = field(default_factory=set)

    @property
    def is_at_end(self) -> bool:
        return self.at == len(self.text)

    def next_is(self, prefix: str) -> bool:
        return self.text.startswith(prefix, self.at)

    def take(self) -> str:
        """The next character."""
        if self.is_at_end:
            raise InvalidExpressionError("the expression ends too early")
        self.at += 1
        return self.text[self.at - 1]

    def skip(self, prefix: str) -> bool:
        """Go behind the prefix if it comes next."""
        if not self.next_is(prefix):
            return False
        self.at += len(prefix)
        return True

    # Alternatives, sequences, repetitions

    def alternatives(self) -> _Node:
        """Everything up to the end or to an unmatched parenthesis."""
        branches = [self.sequence()]
        while self.skip("|"):
            branches.append(self.sequence())
        if len(branches) == 1:
            return branches[0]
        return _Node(_any_of([branch.matcher for branch in branches]), max(branch.repetitions for branch in branches))

    def sequence(self) -> _Node:
        parts: list[_Node] = []
        repeated_to = -1
        while not self.is_at_end and not self.next_is("|") and not self.next_is(")"):
            start = self.at
            bounds = self.repetition()
            if bounds is not None:
                if not parts:
                    raise InvalidExpressionError("nothing to repeat")
                if repeated_to == start:
                    raise InvalidExpressionError("a repetition of a repetition")
                self.skip("?")
                repeated_to = self.at
                parts[-1] = _repeated(parts[-1], *bounds)
            else:
                is_brace = self.next_is("{")
                parts += self.atom()
                # RE2J takes a brace that counts nothing for a character, and yet for a repetition that cannot be repeated.
                repeated_to = self.at if is_brace else -1
        return _Node(_all_of([part.matcher for part in parts]), max((part.repetitions for part in parts), default=1))

    def repetition(self) -> tuple[int, int | None] | None:
        """(least, most) of ``*``, ``+``, ``?`` or ``{n,m}``; None: something else comes next, which may be a brace that counts nothing."""
        if self.is_at_end:
            return None
        simple: dict[str, tuple[int, int | None]] = {"*": (0, None), "+": (1, None), "?": (0, 1)}
        sign = self.text[self.at]
        if sign in simple:
            self.at += 1
            return simple[sign]
        if sign != "{":
            return None
        inside, brace, _ = self.text[self.at + 1 :].partition("}")
        least, comma, most = inside.partition(",")
        if not brace or not _is_count(least) or not (most == "" or _is_count(most)):
            return None
        self.at += len(inside) + 2
        low = int(least)
        high = low if not comma else int(most) if most else None
        if low > _MOST_REPETITIONS or (high is not None and not low <= high <= _MOST_REPETITIONS):
            raise InvalidExpressionError("a bad number of repetitions")
        return low, high

    # Atoms

    def atom(self) -> list[_Node]:
        """One atom; none for flags, and several for quoted text."""
        sign = self.take()
        if sign == "(":
            return self.group()
        if sign == "[":
            return [_Node(_one_of(self.char_class()))]
        if sign == ".":
            any_char = "s" in self.flags
            return [_Node(_one_of(lambda char: any_char or char != "\n"))]
        if sign == "^":
            return [_Node(_where(_begins_line if "m" in self.flags else _begins_text))]
        if sign == "$":
            return [_Node(_where(_ends_line if "m" in self.flags else _ends_text))]
        if sign == "\\":
            return self.escaped()
        return [self.literal(sign)]

    def literal(self, char: str) -> _Node:
        return _Node(_one_of(self.folded(lambda other: other == char)))

    def folded(self, is_in: IsIn) -> IsIn:
        """A set of characters, without regard to case if the flag i is set."""
        if "i" not in self.flags:
            return is_in
        others = {letter: [odd for odd, plain in _FOLDS.items() if plain == letter.lower()] for letter in string.ascii_letters}
        return lambda char: any(map(is_in, (char, char.lower(), char.upper(), *others.get(char, ()))))

    def escaped(self) -> list[_Node]:
        assertions = {"A": _begins_text, "z": _ends_text, "b": _at_word_boundary, "B": _within_word}
        if self.is_at_end:
            raise InvalidExpressionError("a backslash at the end")
        char = self.text[self.at]
        if char in assertions:
            self.at += 1
            return [_Node(_where(assertions[char]))]
        if self.skip("Q"):
            quoted, _, _ = self.text[self.at :].partition("\\E")
            self.at = min(self.at + len(quoted) + 2, len(self.text))
            return [self.literal(one) for one in quoted]
        if (is_in := self.named_class()) is not None:
            return [_Node(_one_of(is_in))]
        return [self.literal(self.escaped_char())]

    def group(self) -> list[_Node]:
        outside = self.flags
        if self.skip("?P<") or self.skip("?<"):
            name, sign, _ = self.text[self.at :].partition(">")
            if not sign or not name or not _WORD.issuperset(name) or name in self.names:
                raise InvalidExpressionError("a bad name of a group")
            self.names.add(name)
            self.at += len(name) + 1
        elif self.skip("?") and self.read_flags() == ")":
            return []
        inside = self.alternatives()
        if not self.skip(")"):
            raise InvalidExpressionError("missing )")
        self.flags = outside
        return [inside]

    def read_flags(self) -> str:
        """Read the flags after ``(?``. Returns the sign after them: ``:`` or ``)``."""
        flags, is_set, has_flag = set(self.flags), True, False
        while True:
            sign = self.take()
            if sign in _FLAGS:
                has_flag = True
                (flags.add if is_set else flags.discard)(sign)
            elif sign == "-" and is_set:
                is_set, has_flag = False, False
            elif sign in ":)" and (is_set or has_flag):
                self.flags = frozenset(flags)
                return sign
            else:
                raise InvalidExpressionError("an unknown group")

    # Characters

    def escaped_char(self) -> str:
        """The character of an escape, behind the backslash."""
        char = self.take()
        if char in "01234567":
            if char != "0" and (self.is_at_end or self.text[self.at] not in string.octdigits):
                raise InvalidExpressionError("a backreference")
            digits = char
            while len(digits) < 3 and not self.is_at_end and self.text[self.at] in string.octdigits:
                digits += self.take()
            return chr(int(digits, 8))
        if char == "x":
            return self.hexadecimal()
        if char in _ESCAPES:
            return _ESCAPES[char]
        if char.isascii() and char.isalnum():
            raise InvalidExpressionError("an unknown escape")
        return char

    def hexadecimal(self) -> str:
        if self.skip("{"):
            digits, brace, _ = self.text[self.at :].partition("}")
            self.at += len(digits) + 1
            is_good = bool(brace)
        else:
            digits = self.text[self.at : self.at + 2]
            self.at += 2
            is_good = len(digits) == 2
        if not is_good or not digits or not set(digits) <= set(string.hexdigits) or int(digits, 16) > _LARGEST_CODE:
            raise InvalidExpressionError("a bad hexadecimal number")
        return chr(int(digits, 16))

    def named_class(self) -> IsIn | None:
        r"""The class of ``\d`` or ``\p{L}``, behind the backslash; None: it is another escape."""
        sign = self.text[self.at] if not self.is_at_end else ""
        if sign.lower() in _PERL and sign:
            self.at += 1
            members = _PERL[sign.lower()]
            return _negated(self.folded(members.__contains__), sign.isupper())
        if sign not in ("p", "P"):
            return None
        self.at += 1
        name = self.take()
        if name == "{":
            name, brace, _ = self.text[self.at :].partition("}")
            if not brace:
                raise InvalidExpressionError("missing }")
            self.at += len(name) + 1
        is_negated = (sign == "P") != name.startswith("^")
        return _negated(self.folded(_unicode_class(name.removeprefix("^"))), is_negated)

    def char_class(self) -> IsIn:
        """A class in brackets, behind the opening one."""
        is_negated = self.skip("^")
        parts: list[IsIn] = []
        is_first = True
        while is_first or not self.next_is("]"):
            is_first = False
            if self.is_at_end:
                raise InvalidExpressionError("missing ]")
            parts.append(self.part_of_class())
        self.at += 1
        return _negated(lambda char: any(part(char) for part in parts), is_negated)

    def part_of_class(self) -> IsIn:
        if self.next_is("[:") and (end := self.text.find(":]", self.at + 2)) >= 0:
            name = self.text[self.at + 2 : end]
            self.at = end + 2
            if name.removeprefix("^") not in _POSIX:
                raise InvalidExpressionError("an unknown class")
            members = _POSIX[name.removeprefix("^")]
            return _negated(self.folded(members.__contains__), name.startswith("^"))
        if self.skip("\\"):
            if (is_in := self.named_class()) is not None:
                return is_in
            low = self.escaped_char()
        else:
            low = self.take()
        high = low
        if self.next_is("-") and not self.next_is("-]") and self.at + 1 < len(self.text):
            self.at += 1
            high = self.escaped_char() if self.skip("\\") else self.take()
            if high < low:
                raise InvalidExpressionError("a bad range")
        return self.folded(lambda char: low <= char <= high)


def _is_count(text: str) -> bool:
    """Whether RE2J reads the text as a number: no zeros before others."""
    return text.isascii() and text.isdigit() and (text == "0" or text[0] != "0")


def _unicode_class(name: str) -> IsIn:
    if name == "Any":
        return lambda char: True
    if name in _CATEGORIES:
        return lambda char: unicodedata.category(char).startswith(name)
    if name not in _SCRIPTS:
        raise InvalidExpressionError("an unknown class of Unicode")
    if name == "Latin":
        return lambda char: char.isascii() and char.isalpha()
    return lambda char: name == "Common" and char.isascii() and not char.isalpha()


def _negated(is_in: IsIn, is_negated: bool) -> IsIn:
    return (lambda char: not is_in(char)) if is_negated else is_in


# Matchers


def _one_of(is_in: IsIn) -> Matcher:
    return lambda text, starts: {start + 1 for start in starts if start < len(text) and is_in(text[start])}


def _where(holds: Callable[[str, int], bool]) -> Matcher:
    return lambda text, starts: {start for start in starts if holds(text, start)}


def _all_of(parts: list[Matcher]) -> Matcher:
    def match(text: str, starts: Positions) -> Positions:
        for part in parts:
            if not starts:
                break
            starts = part(text, starts)
        return starts

    return match


def _any_of(branches: list[Matcher]) -> Matcher:
    return lambda text, starts: {end for branch in branches for end in branch(text, starts)}


def _repeated(node: _Node, least: int, most: int | None) -> _Node:
    """A repetition. Raises InvalidExpressionError if counted repetitions in one another are too many."""
    counted = max(least, most or 0)
    repetitions = node.repetitions * max(counted, 1)
    if counted >= 2 and repetitions > _MOST_REPETITIONS:
        raise InvalidExpressionError("too many repetitions")

    def match(text: str, starts: Positions) -> Positions:
        for _ in range(least):
            starts = node.matcher(text, starts)
        ends, new, left = set(starts), set(starts), most
        while new and (left is None or left > least):
            new = set(node.matcher(text, new)) - ends
            ends |= new
            left = None if left is None else left - 1
        return ends

    return _Node(match, repetitions)


def _begins_text(text: str, at: int) -> bool:
    return at == 0


def _ends_text(text: str, at: int) -> bool:
    return at == len(text)


def _begins_line(text: str, at: int) -> bool:
    return at == 0 or text[at - 1] == "\n"


def _ends_line(text: str, at: int) -> bool:
    return at == len(text) or text[at] == "\n"


def _at_word_boundary(text: str, at: int) -> bool:
    return (at > 0 and text[at - 1] in _WORD) != (at < len(text) and text[at] in _WORD)


def _within_word(text: str, at: int) -> bool:
    return not _at_word_boundary(text, at)
