"""The rules, a file for each family of findings: rule, sentence, remedy and command of a finding stand together.

A new finding is a kind and a rule in one of the files. The last lines of the file register both: the kind with its rank among the kinds of
all files, the lowest being the worst.
"""

from collections.abc import Callable, Iterator, Mapping

from groupcoord_spark.doctor.findings import Finding, FindingKind
from groupcoord_spark.doctor.patient import Patient
from groupcoord_spark.doctor.rules import cleaner, groups, sizes, transactions

_FILES = (transactions, cleaner, sizes, groups)

FINDINGS: Mapping[str, FindingKind] = {kind.name: kind for _, kind in sorted(place for file in _FILES for place in file.FINDINGS.items())}
"""Name -> kind, the worst first."""

RULES: tuple[Callable[[Patient], Iterator[Finding]], ...] = tuple(rule for file in _FILES for rule in file.RULES)
"""The rules: each gives the findings of its kinds about a partition of a copy."""
