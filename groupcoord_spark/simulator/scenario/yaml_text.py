"""Reads the YAML of a scenario. Every mapping and list knows the lines of its parts, so that a mistake can be named with its line.

Stricter than YAML: a key that is there twice is refused, where YAML keeps the last one. A number with a point is a text, so that the
release 4.10 is not read as 4.1.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import yaml

from groupcoord_spark.errors import UsageError

LARGEST_BYTES: Final = 1_000_000
"""The largest scenario. A million bytes are about 20,000 steps; a larger file is another file."""
DEEPEST: Final = 20
"""How deep mappings and lists may be nested. The language itself needs 6."""
MOST_DIGITS: Final = 100
"""A longer number is refused. Kafka's largest has 19 digits, and Python does not print one of more than 4,300."""


class MistakeError(UsageError):
    """Raised for a mistake in a scenario. line: where it is, from 1; None: in the file as a whole."""

    def __init__(self, sentence: str, line: int | None) -> None:
        super().__init__(sentence)
        self.line = line


class PlacedMapping(dict[Any, Any]):
    """A mapping of the file. line: where it begins. lines: key -> the line of the key."""

    __slots__ = ("line", "lines")

    line: int
    lines: dict[Any, int]


class PlacedList(list[Any]):
    """A list of the file. lines: the line of each element."""

    __slots__ = ("lines",)

    lines: list[int]


class _Loader(yaml.SafeLoader):
    """Makes placed mappings and lists."""

    # Without its rule for floats, YAML reads 4.10 as the text that it is.
    yaml_implicit_resolvers = {  # noqa: RUF012 - a class attribute of PyYAML
        first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:float"]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._depth = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        self._depth += 1
        if self._depth > DEEPEST:
            raise MistakeError(f"mappings and lists are nested deeper than {DEEPEST}: is this a scenario?", self.line + 1)
        node: yaml.Node | None = super().compose_node(parent, index)
        self._depth -= 1
        return node

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        if node.tag == "tag:yaml.org,2002:int" and len(node.value) > MOST_DIGITS:
            sentence = f"the number {node.value[:20]}... has {len(node.value):,} characters, and a number may have {MOST_DIGITS}"
            raise MistakeError(f"{sentence}. Put it in quotes if it is a text.", _line(node))
        try:
            return super().construct_object(node, deep)
        except ValueError as e:
            # A value in the form of a date that no calendar has, for example 2026-13-40.
            raise MistakeError(f"{node.value!r} cannot be read: {e}. Put it in quotes if it is a text.", _line(node)) from e

    def construct_placed_mapping(self, node: yaml.MappingNode) -> PlacedMapping:
        own_lines: dict[Any, int] = {}
        for key_node, _ in node.value:
            if key_node.tag == "tag:yaml.org,2002:merge":
                continue
            key, line = self.construct_object(key_node, deep=True), _line(key_node)
            if isinstance(key, dict | list):
                raise MistakeError("a mapping or a list is a key here: only a name can be one.", line)
            if key in own_lines:
                raise MistakeError(f"{key!r} is there already on line {own_lines[key]}: keep one of them.", line)
            own_lines[key] = line
        mapping = PlacedMapping(self.construct_mapping(node, deep=True))
        mapping.line = _line(node)
        mapping.lines = {self.construct_object(key_node, deep=True): _line(key_node) for key_node, _ in node.value}
        return mapping

    def construct_placed_list(self, node: yaml.SequenceNode) -> PlacedList:
        elements = PlacedList(self.construct_sequence(node, deep=True))
        elements.lines = [_line(part) for part in node.value]
        return elements


_Loader.add_constructor("tag:yaml.org,2002:map", _Loader.construct_placed_mapping)
_Loader.add_constructor("tag:yaml.org,2002:seq", _Loader.construct_placed_list)


def read_yaml(text: str) -> Any:
    """Parse a YAML text into ``PlacedMapping`` and ``PlacedList``. Raises MistakeError, with the line if it is known."""
    if len(text) > LARGEST_BYTES:
        raise MistakeError(f"{len(text):,} characters are more than a scenario may have ({LARGEST_BYTES:,}).", None)
    loader = None
    try:
        loader = _Loader(text)
        return loader.get_single_data()
    except yaml.MarkedYAMLError as e:
        mark = e.problem_mark or e.context_mark
        raise MistakeError(_sentence(e), None if mark is None else mark.line + 1) from e
    except yaml.reader.ReaderError as e:
        line = text.count("\n", 0, e.position) + 1
        raise MistakeError(f"the character {chr(e.character)!r} may not stand in YAML. Remove it.", line) from e
    finally:
        if loader is not None:
            loader.dispose()


def line_of(parent: Any, key: Any) -> int | None:
    """Return the line of a mapping's key or a list's element, or None if unknown."""
    if isinstance(parent, PlacedMapping):
        return parent.lines.get(key, parent.line)
    if isinstance(parent, PlacedList):
        line: int = parent.lines[key]
        return line
    return None


@contextmanager
def at_line(line: int | None) -> Iterator[None]:
    """Add the line to a UsageError that has none."""
    try:
        yield
    except MistakeError:
        raise
    except UsageError as e:
        raise MistakeError(str(e), line) from e


def _sentence(error: yaml.MarkedYAMLError) -> str:
    problem = " ".join(str(error.problem).split())
    if "'\\t'" in problem:
        return "a tab stands where YAML wants spaces. Indent with spaces."
    if "constructor for the tag" in problem:
        return "a tag (a word that begins with !) has no meaning in a scenario. Remove it."
    if "expected a single document" in f"{error.context}":
        return "a second document begins here (---). A scenario is one document."
    context = f"{' '.join(str(error.context).split())}: " if error.context else ""
    return f"this is not YAML: {context}{problem}."


def _line(node: yaml.Node) -> int:
    line: int = node.start_mark.line
    return line + 1
