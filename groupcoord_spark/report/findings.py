"""What is worst in a night: conditions on the tables of the report, with a sentence each. A link applies the condition to the table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from groupcoord_spark.wording import counted

if TYPE_CHECKING:
    import pyarrow as pa
    from duckdb import DuckDBPyConnection

Level = Literal["danger", "warning", "note"]

LEVELS: Final[Mapping[Level, str]] = {
    "danger": "Most urgent",
    "warning": "Worth a look soon",
    "note": "Good to know",
}
"""Level -> what it means, the worst first."""

Condition = tuple[str, Literal["=", "<>", ">=", "<="], Any]
"""Column, comparison and value; a NULL meets none."""


@dataclass(frozen=True, slots=True)
class Check:
    """One thing to look for. ``one`` and ``many`` follow the number of rows; ``{groups}`` in them is the number of groups."""

    level: Level
    table: str
    where: tuple[Condition, ...]
    one: str
    many: str
    sums: str | None = None
    """Column whose sum is the number; None: the number of rows."""
    because: str = ""
    """Why it matters or what to do, in a sentence."""


CHECKS: Final = (
    Check(
        "danger",
        "expiring",
        (("live_group_loses", "=", True), ("days_left", "<=", 7)),
        "committed offset goes within 7 days although its group lives",
        "committed offsets of {groups} go within 7 days although the group lives",
        "offsets",
        "The group does not subscribe to the topic any more. If it will again, it begins where auto.offset.reset says.",
    ),
    Check(
        "danger",
        "lag",
        (("share_of_log", ">=", 0.9),),
        "partition is so far behind that its group is about to lose data",
        "partitions of {groups} are so far behind that the group is about to lose data",
        because="The lag is 90 % or more of all that the log of the partition still has.",
    ),
    Check(
        "danger",
        "lag",
        (("lost", ">=", 1),),
        "partition lost records before its group read them",
        "partitions of {groups} lost records before the group read them",
        because="The log begins after the committed offset: the group begins anew where auto.offset.reset says.",
    ),
    Check(
        "danger",
        "lag",
        (("hours_to_loss", "<=", 48),),
        "partition loses records within two days if its group stands still",
        "partitions of {groups} lose records within two days if the group stands still",
        because="At the pace of the last days the log begins after the committed offset by then.",
    ),
    Check(
        "danger",
        "rewinds",
        (("kind", "=", "two_writers"),),
        "committed offset went back because two writers commit to one partition",
        "committed offsets of {groups} went back because two writers commit to one partition",
        because="Two consumers believe that they own the partition: records are processed twice.",
    ),
    Check(
        "danger",
        "quarantined",
        (),
        "fault in the log could not be read",
        "faults in the log could not be read",
        "faults",
        "What these records said is missing from every number of this page.",
    ),
    Check(
        "danger",
        "open_transactions",
        (("open_hours", ">=", 1),),
        "transaction has been open for an hour or more",
        "transactions of {groups} have been open for an hour or more",
        because="The cleaner stops before it, so the offsets topic grows; kafka-transactions can abort it.",
    ),
    Check(
        "warning",
        "stalled",
        (),
        "partition stands still although its group moves",
        "partitions of {groups} stand still although the group moves",
        because="A record that cannot be processed, a stuck thread, or nobody writes to the partition.",
    ),
    Check(
        "warning",
        "lag",
        (("remark", "=", "beyond_end"),),
        "committed offset lies beyond the end of its log",
        "committed offsets of {groups} lie beyond the end of their log",
        because="The topic may have been deleted and made anew: the group would wait for records that are long there.",
    ),
    Check(
        "warning",
        "topic_recreated",
        (("stale_offsets", ">=", 1),),
        "topic was made anew, and committed offsets still belong to the old one",
        "topics were made anew, and committed offsets still belong to the old ones",
    ),
    Check(
        "warning",
        "shared_group_id",
        (),
        "group id is shared by members that read different topics",
        "group ids are shared by members that read different topics",
    ),
    Check(
        "warning",
        "rewinds",
        (("kind", "<>", "two_writers"),),
        "committed offset went back",
        "committed offsets of {groups} went back",
        because="A reset on purpose looks the same: the kind and the time tell.",
    ),
    Check(
        "warning",
        "rebalance_storms",
        (("busiest_hour_rebalances", ">=", 20),),
        "group rebalanced 20 times or more in an hour",
        "groups rebalanced 20 times or more in an hour",
    ),
    Check(
        "warning",
        "expiring",
        (("what", "=", "offsets"), ("days_left", "<=", 1)),
        "committed offset goes within a day",
        "committed offsets of {groups} go within a day",
        "offsets",
        "A group that comes back later begins where auto.offset.reset says.",
    ),
    Check(
        "warning",
        "assigned_never_committed",
        (),
        "partition has a member and no committed offset",
        "partitions of {groups} have a member and no committed offset",
        because="After a restart the group begins there where auto.offset.reset says.",
    ),
    Check(
        "warning",
        "warnings",
        (),
        "doubt about a record",
        "doubts about records",
        "times",
        "A broker may see these records differently, or skip them.",
    ),
    Check(
        "note",
        "expiring",
        (("what", "=", "offsets"), ("days_left", "<=", 7)),
        "committed offset goes within 7 days",
        "committed offsets of {groups} go within 7 days",
        "offsets",
    ),
    Check("note", "orphan_topics", (), "topic has committed offsets and no reader", "topics have committed offsets and no reader"),
    Check("note", "idle_groups", (), "group has no members", "groups have no members"),
)
"""In the order of the page: the worst first, and within a level too."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What a check found. number 0: nothing."""

    check: Check
    number: int
    rows: int
    """Rows of the table that meet the conditions."""
    sentence: str
    """What follows the number."""
    groups: Sequence[str]
    """The first of the groups that it is about, in the order of the table."""
    group_count: int


def findings_of(connection: DuckDBPyConnection, tables: Mapping[str, pa.Table]) -> list[Finding]:
    """Every check with what it found. The connection has each table as ``shown_`` and its name."""
    return [_finding(connection, check, tables[check.table].column_names) for check in CHECKS]


def _finding(connection: DuckDBPyConnection, check: Check, columns: Sequence[str]) -> Finding:
    number = f"COALESCE(SUM({check.sums}), 0)" if check.sums else "COUNT(*)"
    has_groups = "group_id" in columns
    group_ids = "COUNT(DISTINCT group_id), list_slice(list_sort(list(DISTINCT group_id)), 1, 3)" if has_groups else "0, []"
    where = " AND ".join(f"{column} {comparison} ?" for column, comparison, _ in check.where) or "TRUE"
    query = f"SELECT CAST({number} AS BIGINT), {group_ids}, COUNT(*) FROM shown_{check.table} WHERE {where}"
    found = connection.execute(query, [value for _, _, value in check.where]).fetchone()
    assert found is not None  # an aggregate has one row
    sentence = (check.one if found[0] == 1 else check.many).format(groups=counted(found[1], "group"))
    return Finding(check, found[0], found[3], sentence, found[2] or [], found[1])
