"""The rules, a file for each family of findings: rule, sentence, remedy and command of a finding stand together.

A new finding is a kind and a rule in one of the files, and its place in ``FINDINGS``.
"""

from collections.abc import Mapping

from groupcoord_spark.doctor.findings import FindingKind
from groupcoord_spark.doctor.rules import cleaner, groups, sizes, transactions

FINDINGS: Mapping[str, FindingKind] = {
    kind.name: kind
    for kind in (
        transactions.HANGING,
        transactions.OVERDUE,
        transactions.BLOCKED,
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

RULES = (
    transactions.of_transactions, cleaner.of_idle_cleaner, cleaner.of_limits, sizes.of_records, sizes.of_producers, sizes.of_tombstones,
    groups.of_groups,
)  # fmt: skip
"""Each gives the findings of its kind about a partition of a copy."""
