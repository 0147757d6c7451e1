"""Possible faults in a run, the worst first: the kinds of news of ``morning``, and the findings that the report looks for."""

from collections.abc import Mapping, Sequence
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
    """The command that shows more about such findings; sql: the rows of ``table``; empty if ``morning`` does not show them."""
    query: str = ""
    """SELECT of cluster, subject, group_id, reason and number. Rows that the last run has too (with all of them equal but the number) are
    not news. "": see subject."""
    subject: str = ""
    """Columns that identify rows of the view ``table`` if these rows are news; ``reason``: the column that groups them."""
    reason: str = "NULL"
    table: str = ""
    """The table of the report whose rows meet ``where``; empty: the report has none."""
    where: tuple[Condition, ...] = ()
    shown: str = ""
    """Table and condition of the offsets that ``command`` shows, the first to expire first; empty: the rows of ``table``."""
    at: str = ""
    """The time column of the rows that ``command`` shows; empty: news of the kind have no time."""
    sums: str = ""
    """The table's column whose sum is the number; empty: the number of rows."""

    def clause(self, number: int, of_groups: str = "") -> str:
        """Return the sentence without the number."""
        return f"{counted(number, self.noun).partition(' ')[2]}{of_groups} {self.sentence}"

    @property
    def query_of_view(self) -> str:
        """The statement for news among ``rows_of_view``, which are the rows of the view ``table``: those that meet the conditions."""
        return (
            f"SELECT cluster, concat_ws(' ', {self.subject}) AS subject, group_id, {self.reason} AS reason, 1 AS number,"
            f" {self.at or 'NULL'} AS first_at, first_at AS last_at FROM rows_of_view WHERE {' AND '.join(self._conditions()) or 'TRUE'}"
        )

    def statement(self, groups: Sequence[str], reason: str | None, between: tuple[str, str] | None) -> str:
        """Return SQL for the rows that are such findings.

        Args:
            groups: Of these groups alone; empty: of all.
            reason: The value of the column ``reason``; None: any.
            between: The first and the last value of the column ``at``; None: any.
        """
        conditions = [self.shown.partition(" where ")[2]] if self.shown else self._conditions(reason)
        if between is not None:
            conditions.append(f"{self.at} between '{between[0]}' and '{between[1]}'")
        if groups and all(map(str.isprintable, groups)):
            conditions.append(f"group_id in ({', '.join(map(_literal, groups))})")
        where = f" where {' and '.join(conditions)}" if conditions else ""
        return f"from {self.shown.partition(' where ')[0] or self.table}{where}{f' order by {self.at}' if self.at else ''}"

    def _conditions(self, reason: str | None = None) -> list[str]:
        conditions = [
            f"{column} {comparison} {value!r}" for column, comparison, value in self.where if reason is None or column != self.reason
        ]
        return conditions if reason is None else [*conditions, f"{self.reason} = {_literal(reason)}"]


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


_OF_THE_DOCTOR: Final = (
    "SELECT cluster, concat_ws(' ', offsets_partition, subject) AS subject, NULL AS group_id, finding AS reason, 1 AS number"
    " FROM topic_health WHERE severity = '{}'"
)
_EXPIRING: Final = (
    "SELECT cluster, topic AS subject, group_id, NULL AS reason, COUNT(*) AS number, MIN(expires_at) AS first_at,"
    " MAX(expires_at) AS last_at FROM offset_expirations"
    " WHERE {} topic_is_unsubscribed AND expires_at <= as_of + to_milliseconds($horizon_ms) GROUP BY cluster, topic, group_id"
)
_OF_EXPIRATIONS: Final = "offset_expirations where {}topic_is_unsubscribed"
_OPEN_TRANSACTIONS: Final = (
    "SELECT p.cluster, concat_ws(' ', offsets_partition, producer_id) AS subject, group_id, NULL AS reason, 1 AS number"
    " FROM pending_offsets p JOIN (SELECT cluster, MAX(as_of) AS as_of FROM group_expirations GROUP BY cluster) e USING (cluster)"
    " WHERE NOT EXISTS (FROM topic_health h WHERE h.cluster = p.cluster"
    " AND h.severity = 'sick' AND h.offsets_partition = p.offsets_partition AND h.subject = CAST(p.producer_id AS VARCHAR))"
    " GROUP BY p.cluster, offsets_partition, producer_id, group_id"
    " HAVING MIN(record_timestamp) <= MAX(e.as_of) - INTERVAL 1 HOUR"
)
"""Without those that are findings of the doctor (``sick``). The view would read the history."""
_PLACE: Final = "topic, partition"
_REWIND: Final = "offsets_partition, record_offset, rewound_at"
_SKIP: Final = "topic, partition, record_offset, skipped_at"
_LOST_BEGINNING: Final = "The log begins after the committed offset: the group begins again where auto.offset.reset says."

KINDS: Final[Mapping[str, Kind]] = {
    "group_vanished": Kind("danger", "group", "gone, and no run read a record of the removal", command="diff"),
    "offset_vanished": Kind("danger", "committed offset", "gone, and no run read a record of the removal", command="diff"),
    "lost": Kind(
        "danger",
        "partition",
        "with records that were deleted before the group read them",
        _LOST_BEGINNING,
        "sql",
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
        "sql",
        table="lag",
        where=(("hours_to_loss", "<=", 48),),
        subject=_PLACE,
    ),
    "two_writers": Kind(
        "danger",
        "committed offset",
        "lower, as two members commit to one partition",
        "Two consumers believe that they own the partition: records are processed twice.",
        "sql",
        table="rewinds",
        where=(("kind", "=", "two_writers"),),
        subject=_REWIND,
        reason="kind",
        at="rewound_at",
    ),
    "quarantined": Kind(
        "danger",
        "record",
        "not readable",
        "The content of these records is missing from every number.",
        "warnings",
        query="SELECT cluster, concat_ws(' ', offsets_partition, record_offset, source, position) AS subject, NULL AS group_id, reason,"
        " COALESCE(records, 1) AS number FROM quarantined_records",
        table="quarantined",
        sums="faults",
    ),
    "skipped": Kind(
        "danger",
        "committed offset",
        "moved forward over records that were never read",
        "The records are in the log as long as it keeps them: a reset to the old offset reads them.",
        "sql",
        table="skips",
        where=(("certainty", "=", "certain"), ("cause", "<>", "data_deleted")),
        subject=_SKIP,
        reason="cause",
        at="skipped_at",
    ),
    "open_transaction": Kind(
        "danger",
        "transaction",
        "open for an hour or more",
        "The cleaner stops before it, so the offsets topic grows; kafka-transactions can abort it.",
        "sql",
        _OPEN_TRANSACTIONS,
        table="open_transactions",
        where=(("open_hours", ">=", 1),),
        shown="open_transactions where open_for >= interval '1 hour'",
    ),
    "sick": Kind(
        "danger",
        "finding",
        "of the doctor that someone must act on",
        command="doctor",
        query=_OF_THE_DOCTOR.format("sick"),
        table="health",
        where=(("severity", "=", "sick"),),
    ),
    "copy_unchanged": Kind(
        "warning",
        "copy",
        "without a new record",
        "The job that copies the log may have stopped: no figure about the groups is newer than the copy.",
        command="runs",
    ),
    "group_deleted": Kind("warning", "group", "deleted", command="diff"),
    "offset_deleted": Kind("warning", "committed offset", "deleted", command="diff"),
    "group_gone": Kind("warning", "group", "gone, and only the log would show why", command="diff"),
    "offset_gone": Kind("warning", "committed offset", "gone, and only the log would show why", command="diff"),
    "group_expired": Kind("warning", "group", "gone by expiration", command="diff"),
    "offset_expired": Kind("warning", "committed offset", "gone by expiration", command="diff"),
    "rewound": Kind(
        "warning",
        "committed offset",
        "lower than before",
        "A reset on purpose looks the same: compare the kind and the time.",
        "sql",
        table="rewinds",
        where=(("kind", "<>", "two_writers"),),
        subject=_REWIND,
        reason="kind",
        at="rewound_at",
    ),
    "may_have_skipped": Kind(
        "warning",
        "committed offset",
        "moved forward, probably over records that were never read",
        "A group that began again at the log end, or a partition that was added: read the certainty and the evidence.",
        "sql",
        table="skips",
        where=(("certainty", "=", "likely"),),
        subject=_SKIP,
        reason="cause",
        at="skipped_at",
    ),
    "stalled": Kind(
        "warning",
        "partition",
        "standing still although the group moves",
        "A record that cannot be processed, a stuck thread, or nobody writes to the partition.",
        "sql",
        table="stalled",
        subject=_PLACE,
    ),
    "beyond_end": Kind(
        "warning",
        "committed offset",
        "beyond the end of the log",
        "The topic may have been deleted and created again: the group then skips the records below its offset.",
        "sql",
        table="lag",
        where=(("remark", "=", "beyond_end"),),
        subject=_PLACE,
    ),
    "expiring_live": Kind(
        "warning",
        "committed offset",
        "of a living group about to expire: no member subscribes to the topic",
        "Within 7 days. If the group will subscribe to it again, it begins where auto.offset.reset says.",
        "sql",
        query=_EXPIRING.format(""),
        shown=_OF_EXPIRATIONS.format(""),
        at="expires_at",
        table="expiring",
        where=(("live_group_loses", "=", True), ("days_left", "<=", 7)),
        sums="offsets",
    ),
    "topic_recreated": Kind(
        "warning",
        "topic",
        "created again, and committed offsets still belong to the old one",
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
        "of the run",
        "A broker may see these records differently, or skip them.",
        "warnings",
        query="SELECT cluster, concat_ws(' ', offsets_partition, record_offset, source, detail) AS subject, group_id, code AS reason,"
        " 1 AS number FROM warnings",
        table="warnings",
        sums="times",
    ),
    "watch": Kind(
        "note",
        "finding",
        "of the doctor to keep an eye on",
        command="doctor",
        query=_OF_THE_DOCTOR.format("watch"),
        table="health",
        where=(("severity", "=", "watch"),),
    ),
    "expiring": Kind(
        "note",
        "committed offset",
        "about to expire",
        "Within 7 days.",
        "sql",
        query=_EXPIRING.format("NOT"),
        shown=_OF_EXPIRATIONS.format("not "),
        at="expires_at",
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
