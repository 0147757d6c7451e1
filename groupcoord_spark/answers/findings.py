"""What may be wrong in a night, the worst first: the kinds of news of ``morning``, and what the report looks for in its tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal, NamedTuple

from groupcoord_spark.wording import counted

Level = Literal["danger", "warning", "note"]

LEVELS: Final[Mapping[Level, str]] = {"danger": "Most urgent", "warning": "Worth a look soon", "note": "Good to know"}
"""Level -> what it means, the worst first. danger: someone must act now. warning: worth a look today."""

Condition = tuple[str, Literal["=", "<>", ">=", "<="], Any]
"""Column, comparison and value; a NULL meets none."""


class Kind(NamedTuple):
    """One kind of finding. Its sentence is a number, the noun and ``sentence``: 3 groups deleted."""

    level: Level
    noun: str
    sentence: str
    because: str = ""
    """Why it matters or what to do, in a sentence."""
    command: str = ""
    """The command that shows more about such findings; empty: they are no news."""
    command_of_group: str = "why"
    """The command that shows more about one group, with --group."""
    query: str = ""
    """SELECT of subject, group_id, reason and number. What the night before has too (all three alike) is no news. Empty: see subject."""
    subject: str = ""
    """Columns that tell the rows of the view ``table`` apart, where these rows are news; reason: the column by which they are counted."""
    reason: str = "NULL"
    table: str = ""
    """The table of the report whose rows meet ``where``; empty: the report has none."""
    where: tuple[Condition, ...] = ()
    sums: str = ""
    """The table's column whose sum is the number; empty: the number of rows."""

    def clause(self, number: int, of_groups: str = "") -> str:
        """The sentence without the number."""
        return f"{counted(number, self.noun).partition(' ')[2]}{of_groups} {self.sentence}"

    @property
    def query_of_view(self) -> str:
        """The statement for news among ``rows_of_view``, which are the rows of the view ``table``: those that meet the conditions."""
        where = " AND ".join(f"{column} {comparison} {value!r}" for column, comparison, value in self.where) or "TRUE"
        return (
            f"SELECT concat_ws(' ', {self.subject}) AS subject, group_id, {self.reason} AS reason, 1 AS number FROM rows_of_view"
            f" WHERE {where}"
        )


_OF_THE_DOCTOR: Final = (
    "SELECT concat_ws(' ', offsets_partition, subject) AS subject, NULL AS group_id, finding AS reason, 1 AS number FROM topic_health"
    " WHERE severity = '{}'"
)
_EXPIRING: Final = (
    "SELECT topic AS subject, group_id, NULL AS reason, COUNT(*) AS number FROM offset_expirations"
    " WHERE {} topic_is_unsubscribed AND expires_at <= as_of + to_milliseconds($horizon_ms) GROUP BY topic, group_id"
)
_PLACE: Final = "topic, partition"
_REWIND: Final = "offsets_partition, record_offset, rewound_at"
_LOST_BEGINNING: Final = "The log begins after the committed offset: the group begins anew where auto.offset.reset says."

KINDS: Final[Mapping[str, Kind]] = {
    "group_vanished": Kind("danger", "group", "gone, and no night read a record of the removal", command="diff --only gone"),
    "offset_vanished": Kind("danger", "committed offset", "gone, and no night read a record of the removal", command="diff --only gone"),
    "lost": Kind(
        "danger",
        "partition",
        "with records that were deleted before the group read them",
        _LOST_BEGINNING,
        "list --lag",
        "describe",
        table="lag",
        where=(("lost", ">=", 1),),
        subject=_PLACE,
    ),
    "about_to_lose": Kind(
        "danger",
        "partition",
        "so far behind that the group is about to lose data",
        "The lag is 90 % or more of all that the log of the partition still has.",
        table="lag",
        where=(("share_of_log", ">=", 0.9),),
    ),
    "loses_soon": Kind(
        "danger",
        "partition",
        "about to lose records within two days if the group stands still",
        "At the pace of the last days the log begins after the committed offset by then.",
        "list --lag",
        "describe",
        table="lag",
        where=(("hours_to_loss", "<=", 48),),
        subject=_PLACE,
    ),
    "two_writers": Kind(
        "danger",
        "committed offset",
        "lower, as two members commit to one partition",
        "Two consumers believe that they own the partition: records are processed twice.",
        "sql 'from rewinds'",
        "timeline",
        table="rewinds",
        where=(("kind", "=", "two_writers"),),
        subject=_REWIND,
        reason="kind",
    ),
    "quarantined": Kind(
        "danger",
        "record",
        "not readable",
        "What these records said is missing from every number.",
        "warnings",
        query="SELECT concat_ws(' ', offsets_partition, record_offset, source, position) AS subject, NULL AS group_id, reason,"
        " COALESCE(records, 1) AS number FROM quarantined_records",
        table="quarantined",
        sums="faults",
    ),
    "open_transaction": Kind(
        "danger",
        "transaction",
        "open for an hour or more",
        "The cleaner stops before it, so the offsets topic grows; kafka-transactions can abort it.",
        table="open_transactions",
        where=(("open_hours", ">=", 1),),
    ),
    "sick": Kind("danger", "finding", "of the doctor that someone must act on", command="doctor", query=_OF_THE_DOCTOR.format("sick")),
    "group_deleted": Kind("warning", "group", "deleted", command="diff --only gone"),
    "offset_deleted": Kind("warning", "committed offset", "deleted", command="diff --only gone"),
    "group_gone": Kind("warning", "group", "gone, and only the log would tell why", command="diff --only gone"),
    "offset_gone": Kind("warning", "committed offset", "gone, and only the log would tell why", command="diff --only gone"),
    "group_expired": Kind("warning", "group", "gone by expiration", command="diff --only gone"),
    "offset_expired": Kind("warning", "committed offset", "gone by expiration", command="diff --only gone"),
    "rewound": Kind(
        "warning",
        "committed offset",
        "lower than before",
        "A reset on purpose looks the same: the kind and the time tell.",
        "sql 'from rewinds'",
        "timeline",
        table="rewinds",
        where=(("kind", "<>", "two_writers"),),
        subject=_REWIND,
        reason="kind",
    ),
    "stalled": Kind(
        "warning",
        "partition",
        "standing still although the group moves",
        "A record that cannot be processed, a stuck thread, or nobody writes to the partition.",
        "sql 'from stalled'",
        "describe",
        table="stalled",
        subject=_PLACE,
    ),
    "beyond_end": Kind(
        "warning",
        "committed offset",
        "beyond the end of the log",
        "The topic may have been deleted and made anew: the group would wait for records that are long there.",
        "list --lag",
        "describe",
        table="lag",
        where=(("remark", "=", "beyond_end"),),
        subject=_PLACE,
    ),
    "expiring_live": Kind(
        "warning",
        "committed offset",
        "of a living group about to expire: no member subscribes to the topic",
        "Within 7 days. If the group will subscribe to it again, it begins where auto.offset.reset says.",
        "expire",
        query=_EXPIRING.format(""),
        table="expiring",
        where=(("live_group_loses", "=", True), ("days_left", "<=", 7)),
        sums="offsets",
    ),
    "topic_recreated": Kind(
        "warning",
        "topic",
        "made anew, and committed offsets still belong to the old one",
        table="topic_recreated",
        where=(("stale_offsets", ">=", 1),),
    ),
    "shared_group_id": Kind("warning", "group id", "shared by members that read different topics", table="shared_group_id"),
    "rebalance_storm": Kind(
        "warning",
        "group",
        "rebalanced 20 times or more in an hour",
        table="rebalance_storms",
        where=(("busiest_hour_rebalances", ">=", 20),),
    ),
    "expires_within_a_day": Kind(
        "warning",
        "committed offset",
        "about to expire within a day",
        "A group that comes back later begins where auto.offset.reset says.",
        table="expiring",
        where=(("what", "=", "offsets"), ("days_left", "<=", 1)),
        sums="offsets",
    ),
    "never_committed": Kind(
        "warning",
        "partition",
        "with a member and no committed offset",
        "After a restart the group begins there where auto.offset.reset says.",
        table="assigned_never_committed",
    ),
    "doubt": Kind(
        "warning",
        "doubt",
        "of the night",
        "A broker may see these records differently, or skip them.",
        "warnings",
        "warnings",
        "SELECT concat_ws(' ', offsets_partition, record_offset, source, detail) AS subject, group_id, code AS reason, 1 AS number"
        " FROM warnings",
        table="warnings",
        sums="times",
    ),
    "watch": Kind("note", "finding", "of the doctor to keep an eye on", command="doctor", query=_OF_THE_DOCTOR.format("watch")),
    "expiring": Kind(
        "note",
        "committed offset",
        "about to expire",
        "Within 7 days.",
        "expire",
        query=_EXPIRING.format("NOT"),
        table="expiring",
        where=(("what", "=", "offsets"), ("days_left", "<=", 7)),
        sums="offsets",
    ),
    "orphan_topic": Kind("note", "topic", "with committed offsets and no reader", table="orphan_topics"),
    "idle_group": Kind("note", "group", "without members", table="idle_groups"),
}
"""Kind of finding -> what it is, the worst first."""

NEWS: Final = {name: kind for name, kind in KINDS.items() if kind.command}
"""The kinds of news."""
