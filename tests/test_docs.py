"""The pages below docs/: every rule that the code names can be looked up, and every link leads somewhere."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))

RULE_ID = re.compile(r"\b(R-\d+\.\d+|X-[A-Z]\d*)\b")
CODE_BLOCK = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
INLINE_CODE = re.compile(r"`[^`\n]*`")
HEADING = re.compile(r"^#{1,6} +(.+?) *$", re.MULTILINE)
EXPLICIT_ANCHOR = re.compile(r'<a id="([^"]+)">')
LINK = re.compile(r"\]\(([^()\s]+)\)")
LINK_AS_TEXT = re.compile(r"\[([^\]]*)\]\([^)]*\)")


def rules_in_code() -> set[str]:
    """Every rule id in the package's source."""
    return {rule for path in (ROOT / "groupcoord_spark").rglob("*.py") for rule in RULE_ID.findall(path.read_text(encoding="utf-8"))}


@cache
def anchors_of(page: Path) -> frozenset[str]:
    """What a link to the page may name after ``#``: explicit anchors, and headings as GitHub turns them into anchors."""
    text = CODE_BLOCK.sub("", page.read_text(encoding="utf-8"))
    anchors = set(EXPLICIT_ANCHOR.findall(text))
    for heading in HEADING.findall(text):
        words = LINK_AS_TEXT.sub(r"\1", heading).replace("`", "").lower()
        slug = re.sub(r"[^\w\- ]", "", words).replace(" ", "-")
        repetition = 0
        while (anchor := f"{slug}-{repetition}" if repetition else slug) in anchors:
            repetition += 1
        anchors.add(anchor)
    return frozenset(anchors)


def broken_links(page: Path) -> Iterator[str]:
    """The relative links of the page that lead to no file, or to no anchor of that file."""
    text = INLINE_CODE.sub("", CODE_BLOCK.sub("", page.read_text(encoding="utf-8")))
    for link in LINK.findall(text):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists():
            yield f"{link}: there is no such file"
        elif anchor and anchor not in anchors_of(target):
            yield f"{link}: the page has no such anchor"


def test_every_rule_that_the_code_names_can_be_looked_up() -> None:
    anchors = {anchor for page in (DOCS / "reference").glob("*.md") for anchor in anchors_of(page)}
    rules = rules_in_code()
    assert len(rules) > 60
    assert sorted(rule for rule in rules if rule.lower() not in anchors) == []


def test_every_rule_that_a_page_names_can_be_looked_up() -> None:
    anchors = {anchor for page in (DOCS / "reference").glob("*.md") for anchor in anchors_of(page)}
    rules = {rule for page in PAGES for rule in RULE_ID.findall(page.read_text(encoding="utf-8"))}
    assert sorted(rule for rule in rules if rule.lower() not in anchors) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(DOCS)))
def test_no_page_has_an_explicit_anchor_twice(page: Path) -> None:
    anchors = EXPLICIT_ANCHOR.findall(page.read_text(encoding="utf-8"))
    assert [anchor for anchor, count in Counter(anchors).items() if count > 1] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(DOCS)))
def test_every_relative_link_leads_to_a_file_and_an_anchor(page: Path) -> None:
    assert list(broken_links(page)) == []
