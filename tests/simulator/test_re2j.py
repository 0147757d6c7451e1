"""Regular expressions as the broker reads them: what RE2J 1.8 said of them is recorded in tests/golden/re2j.json."""

import json
from pathlib import Path
from resource import RUSAGE_SELF, getrusage

import pytest

from groupcoord_spark.simulator.broker.release import release_for
from groupcoord_spark.simulator.messages.re2j import InvalidExpressionError, matches, parsed
from groupcoord_spark.simulator.scenario.playing import play
from groupcoord_spark.simulator.scenario.reading import read_scenario
from tests.simulator.rules import plays

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "re2j.json").read_text("utf-8"))


def of_simulator(expression: str) -> str:
    try:
        return "".join("01"[matches(expression, text)] for text in GOLDEN["texts"])
    except InvalidExpressionError:
        return "refused"


def test_expressions_are_read_as_re2j_reads_them_but_for_a_repeated_brace() -> None:
    assert len(GOLDEN["results"]) > 1_000
    differing = {expression for expression in GOLDEN["results"] if of_simulator(expression) != GOLDEN["results"][expression]}
    assert differing == {"{{0}\\101"}


@pytest.mark.parametrize(
    "expression",
    [
        "(a)\\1",
        "a(?=b)",
        "(?!a)b",
        "(?<=a)b",
        "(?<!a)b",
        "a++",
        "a*+",
        "(?>a)",
        "a**",
        "\\Z",
        "\\C",
        "[[:foo:]]",
        "\\p{Foo}",
        "a{1001}",
        "(a",
        "\ud800",
    ],
)
def test_what_re2j_lacks_is_refused(expression: str) -> None:
    with pytest.raises(InvalidExpressionError):
        parsed(expression)


def test_a_match_never_takes_exponential_time() -> None:
    assert not matches("((a*)*)*b", "a" * 200)
    assert matches("(a|aa)+", "a" * 200)


def test_many_groups_in_one_another_take_no_memory() -> None:
    before = getrusage(RUSAGE_SELF).ru_maxrss
    assert matches("(" * 20_000 + "a" + ")" * 20_000, "a")
    with pytest.raises(InvalidExpressionError, match="more than 1,000 groups with names"):
        matches("".join(f"(?P<g{number}>" for number in range(20_000)) + "a" + ")" * 20_000, "a")
    assert getrusage(RUSAGE_SELF).ru_maxrss < 2 * before


@pytest.mark.parametrize("expression", ["\\\\C", "\\Q\\C\\E"])
def test_a_c_behind_a_backslash_that_is_a_character_is_no_escape(expression: str) -> None:
    assert matches(expression, "\\C")


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_an_expression_that_explodes_in_a_backtracking_engine_is_matched_at_once(protocol: str) -> None:
    text = f"""
topics: {{{"a" * 60}: 1, {"a" * 60}b: 1}}
members: {{a: {{group.protocol: {protocol}, topics.pattern: "(a+)+$"}}}}
steps: [{{at: 0s, start: a}}]
"""
    rows = play(read_scenario(text, "s"), release_for()).rows
    assert f"onPartitionsAssigned({'a' * 60}:0)" in [row.what for row in rows]


@plays("C-13.4.11")
@pytest.mark.parametrize(
    ("expression", "shown"),
    [("(or)ders-\\\\1", "fails for good: INVALID_REGULAR_EXPRESSION"), ("ord.*", "onPartitionsAssigned(orders:0)")],
)
def test_the_broker_reads_the_expression_of_a_client(expression: str, shown: str) -> None:
    text = f"""
topics: {{orders: 1}}
members: {{a: {{group.protocol: consumer, topics.pattern: "{expression}"}}}}
steps: [{{at: 0s, start: a}}]
"""
    rows = play(read_scenario(text, "s"), release_for()).rows
    assert shown in [row.what for row in rows]
