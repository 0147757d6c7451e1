"""Regular expressions held against RE2J itself: ``python -m tests.tools.conformance.re2j JAR [--count N] [--seed S] [--record]``

Random expressions, pieced together from what the syntax has and from what it lacks. Prints where the simulator differs; ``--record`` writes
what RE2J says of a tenth of them to ``tests/golden/re2j.json``, which the tests compare with the simulator. JAR: re2j of Kafka's ``libs``.
"""

from __future__ import annotations

import argparse
import base64
import json
import random
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from groupcoord_spark.simulator.messages.re2j import InvalidExpressionError, matches
from tests.integration.kafka import java

GOLDEN = Path(__file__).parents[2] / "golden" / "re2j.json"
GROUPS = r"(?: (?i) (?i: (?s-m: (?= (?! (?<= (?<n> (?P<n> (?> (?U) (?-i) (?) (?i-:"
ESCAPES = r"\1 \8 \d \D \w \W \s \b \B \A \z \Z \C \Q \E \x41 \x{61} \x \101 \07 \. \_ \- \e \h \K \G \X \R"
CLASSES = r"\p{L} \pN \P{Lu} \p{Greek} \p{Foo} \p{^Latin} [[:alpha:]] [[:^digit:]] [[:foo:]] [^ a-z - [a\d] [\w-z] [z-a] []a] [^]a] [a-\d]"
REPETITIONS = "{2} {2,} {,3} {1,3} {3,1} {1001} {0} {02} a{40} ++ *+ *? ?? +?"
LITERALS = "\u017f \u212a \u00e9 orders"
PIECES = (*"ab.-_09A|()[]{}*+?^$\\,:kKs", *" ".join((GROUPS, ESCAPES, CLASSES, REPETITIONS, LITERALS)).split())
TEXTS = (
    *("", "a", "b", "ab", "aab", "aaaa", "ba9", "A", "k", "K", "s", "S", "n", "x", "Q", "0", "09", "_", "-", ".", "a.b", "a-z", "["),
    *("{2}", "a{,3}", "orders", "orders-1"),
)
REFUSED = "refused"


def random_expressions(seed: int, count: int) -> list[str]:
    """Return every piece alone, and random sequences of them."""
    source = random.Random(seed)
    return [*PIECES, *("".join(source.choices(PIECES, k=source.randint(1, 9))) for _ in range(count))]


def of_simulator(expression: str, texts: Sequence[str]) -> str:
    """Match the texts: return zeros and ones, or ``refused``."""
    try:
        return "".join("01"[matches(expression, text)] for text in texts)
    except InvalidExpressionError:
        return REFUSED


def of_re2j(jar: Path, expressions: Sequence[str]) -> list[str]:
    """Return the same of RE2J."""
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder) / "expressions", Path(folder) / "texts"]
        for file, listed in zip(files, (expressions, TEXTS), strict=True):
            file.write_text("".join(f"{base64.b64encode(one.encode()).decode()}\n" for one in listed))
        source = Path(__file__).with_name("Re2jMatches.java")
        command = [java(), "-cp", str(jar), str(source), *map(str, files)]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()


def main() -> None:
    """Compare and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("jar", type=Path)
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--record", action="store_true")
    options = parser.parse_args()
    expressions = random_expressions(options.seed, options.count)
    results = of_re2j(options.jar, expressions)
    differing = [(one, theirs) for one, theirs in zip(expressions, results, strict=True) if of_simulator(one, TEXTS) != theirs]
    for one, theirs in differing:
        print(f"{one!r}: {of_simulator(one, TEXTS)}, RE2J {theirs}")
    print(f"{len(expressions)} expressions, {len(differing)} differ")
    if options.record:
        recorded = dict(zip(expressions[: options.count // 10], results, strict=False))
        GOLDEN.write_text(json.dumps({"texts": TEXTS, "results": recorded}, indent=0) + "\n")


if __name__ == "__main__":
    main()
