"""The rules, a file for each family of findings: rule, sentence, remedy and command of a finding stand together.

A new finding is a kind and a rule in one of the files. The last line of the file registers the rule, and the list here the kind.
"""

from collections.abc import Callable, Iterator, Mapping

from groupcoord_spark.doctor.findings import Finding, FindingKind
from groupcoord_spark.doctor.patient import Patient
from groupcoord_spark.doctor.rules import cleaner, groups, sizes, transactions

_FILES = (transactions, cleaner, sizes, groups)

FINDINGS: Mapping[str, FindingKind] = {
    kind.name: kind
    for kind in (
        transactions.HANGING,
        transactions.OVERDUE,
        transactions.BLOCKED,
        cleaner.BEGINS_LATE,
        cleaner.STOPPED,
        cleaner.NEVER_CLEANED,
        cleaner.OFFSET_SPAN,
        groups.HOT_GROUP,
        cleaner.REFUSED_AFTER_CLEANING,
        sizes.OVERSIZED,
        cleaner.TOO_MANY_KEYS,
        transactions.OPEN,
        sizes.MANY_PRODUCERS,
        sizes.TOMBSTONES,
        groups.LARGE_METADATA,
        groups.WIDE,
        groups.THROWAWAY,
        cleaner.OTHER_STATE_AFTER_CLEANING,
        cleaner.REFUSED_WHILE_CLEANING,
        sizes.LIVE_SET,
        transactions.YOUNG,
    )
}
"""Name -> kind, the worst first."""

RULES: tuple[Callable[[Patient], Iterator[Finding]], ...] = tuple(rule for file in _FILES for rule in file.RULES)
"""The rules: each gives the findings of its kinds about a partition of a copy."""
