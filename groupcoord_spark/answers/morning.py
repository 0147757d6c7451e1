"""What is new since the last night that differs, the worst first: each kind of news is one row, with the command that shows more."""

from __future__ import annotations

import shlex
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from groupcoord_spark.answers.night_changes import NO_LOG, NOT_KNOWN, Change, last_night_that_differs
from groupcoord_spark.warehouse.read import Run, Warehouse
from groupcoord_spark.warehouse.sql import NightInDuckDB
from groupcoord_spark.wording import counted

MOST_NAMES: Final = 20
"""News have the names of up to this many groups."""


class Kind(NamedTuple):
    """One kind of news."""

    level: str
    """One of LEVELS."""
    noun: str
    """What is counted."""
    sentence: str
    """What follows the number and the noun."""
    command: str
    """Shows more, where not one group alone is concerned."""
    command_of_group: str = "why"
    """Shows more about one group, with --group."""
    query: str = ""
    """SELECT of subject, group_id, reason and number. What the night before has too (all three alike) is no news. Empty: of Change rows."""


LEVELS: Final = ("danger", "warning", "note")
"""danger: someone must act now. warning: worth a look today. note: good to know."""

_FINDINGS = (
    "SELECT concat_ws(' ', offsets_partition, subject) AS subject, NULL AS group_id, finding AS reason, 1 AS number FROM topic_health"
    " WHERE severity = '{}'"
)
_EXPIRING = (
    "SELECT topic AS subject, group_id, NULL AS reason, COUNT(*) AS number FROM offset_expirations"
    " WHERE {} topic_is_unsubscribed AND expires_at <= as_of + to_milliseconds($horizon_ms) GROUP BY topic, group_id"
)
_REWINDS = (
    "SELECT concat_ws(' ', r.incarnation, r.offsets_partition, r.record_offset) AS subject, r.group_id, r.kind AS reason, 1 AS number"
    " FROM rewinds r WHERE {}"
)

KINDS: Final[Mapping[str, Kind]] = {
    "group_vanished": Kind("danger", "group", "gone, and no night read a record of the removal", "diff --only gone"),
    "offset_vanished": Kind("danger", "committed offset", "gone, and no night read a record of the removal", "diff --only gone"),
    "lost": Kind(
        "danger",
        "partition",
        "with records that were deleted before the group read them",
        "list --lag",
        "describe",
        "SELECT concat_ws(' ', topic, partition) AS subject, group_id, NULL AS reason, 1 AS number FROM lag WHERE lost > 0",
    ),
    "two_writers": Kind(
        "danger",
        "committed offset",
        "lower, as two members commit to one partition",
        "sql 'from rewinds'",
        "timeline",
        _REWINDS.format("r.kind = 'two_writers'"),
    ),
    "quarantined": Kind(
        "danger",
        "record",
        "not readable",
        "warnings",
        query="SELECT concat_ws(' ', offsets_partition, record_offset, source, position) AS subject, NULL AS group_id, reason,"
        " COALESCE(records, 1) AS number FROM quarantined_records",
    ),
    "sick": Kind("danger", "finding", "of the doctor that someone must act on", "doctor", query=_FINDINGS.format("sick")),
    "group_deleted": Kind("warning", "group", "deleted", "diff --only gone"),
    "offset_deleted": Kind("warning", "committed offset", "deleted", "diff --only gone"),
    "group_gone": Kind("warning", "group", "gone, and only the log would tell why", "diff --only gone"),
    "offset_gone": Kind("warning", "committed offset", "gone, and only the log would tell why", "diff --only gone"),
    "group_expired": Kind("warning", "group", "gone by expiration", "diff --only gone"),
    "offset_expired": Kind("warning", "committed offset", "gone by expiration", "diff --only gone"),
    "rewound": Kind(
        "warning", "committed offset", "lower than before", "sql 'from rewinds'", "timeline", _REWINDS.format("r.kind <> 'two_writers'")
    ),
    "stalled": Kind(
        "warning",
        "partition",
        "standing still although the group moves",
        "sql 'from stalled'",
        "describe",
        "SELECT concat_ws(' ', topic, partition) AS subject, group_id, NULL AS reason, 1 AS number FROM stalled",
    ),
    "expiring_live": Kind(
        "warning",
        "committed offset",
        "of a living group about to expire: no member subscribes to the topic",
        "expire",
        query=_EXPIRING.format(""),
    ),
    "doubt": Kind(
        "warning",
        "doubt",
        "of the night",
        "warnings",
        "warnings",
        "SELECT concat_ws(' ', offsets_partition, record_offset, source, detail) AS subject, group_id, code AS reason, 1 AS number"
        " FROM warnings",
    ),
    "watch": Kind("note", "finding", "of the doctor to keep an eye on", "doctor", query=_FINDINGS.format("watch")),
    "expiring": Kind("note", "committed offset", "about to expire", "expire", query=_EXPIRING.format("NOT")),
}
"""Kind of news -> what it is, the worst first."""

_FATES: Final = {
    **dict.fromkeys((NOT_KNOWN, "vanished", "topic_begun_anew"), "vanished"),
    **dict.fromkeys(("expired", "expiry_due"), "expired"),
    NO_LOG: "gone",
}
"""Why a group or an offset is gone -> the second word of its kind of news; every other reason is a deletion."""

_NEW_ROWS: Final = """
SELECT reason, CAST(SUM(number) AS BIGINT) AS number, COUNT(DISTINCT group_id) AS group_count,
  list_slice(list_sort(list(DISTINCT group_id) FILTER (group_id IS NOT NULL)), 1, $most_names) AS groups
FROM ({}) n ANTI JOIN rows_before b ON n.subject = b.subject AND n.group_id IS NOT DISTINCT FROM b.group_id
  AND n.reason IS NOT DISTINCT FROM b.reason
GROUP BY reason ORDER BY number DESC, reason
"""
_NO_ROWS: Final = "SELECT '' AS subject, '' AS group_id, '' AS reason, 0 AS number WHERE FALSE"


class News(NamedTuple):
    """All news of one kind, and of one reason where the kind has reasons."""

    level: str
    kind: str
    reason: str | None
    number: int
    group_count: int
    """0: no group is concerned, or none is known."""
    groups: Sequence[str]
    """The names of up to MOST_NAMES of these groups."""

    @property
    def sentence(self) -> str:
        """``3 committed offsets lower than before (seek): a, b and 1 more``."""
        named = self.groups[:3]
        more = [f"{self.group_count - len(named)} more"] if self.group_count > len(named) else []
        of_groups = f": {', '.join(named)}{' and '.join(['', *more])}" if named else ""
        return f"{self.number:,} {self.what}{of_groups}"

    @property
    def what(self) -> str:
        """The sentence without the number and the groups."""
        kind = KINDS[self.kind]
        noun = counted(self.number, kind.noun).partition(" ")[2]
        return f"{noun} {kind.sentence}{f' ({self.reason})' if self.reason else ''}"

    @property
    def command(self) -> str:
        """The arguments of ``groupcoord`` that show more, without those that choose a warehouse and a cluster."""
        kind = KINDS[self.kind]
        if kind.command == "warnings":
            return f"warnings --code {self.reason}"
        return f"{kind.command_of_group} --group {shlex.quote(self.groups[0])}" if self.group_count == 1 else kind.command


class Morning(NamedTuple):
    """What is new in a night."""

    run: Run
    since: Run | None
    """The last night that differs; None: there is no earlier night, and everything is new."""
    news: Sequence[News]
    """The worst first."""


def morning(warehouse: Warehouse, run: Run, horizon_ms: int) -> Morning:
    """What is new in a night since the last night that differs.

    horizon_ms: how long before its expiration an offset is news, once. Raises WarehouseError where the tables of a night cannot be read.
    """
    since, changes = last_night_that_differs(warehouse, run) or (None, [])
    night, before = NightInDuckDB(warehouse, run=run), None if since is None else NightInDuckDB(warehouse, run=since)
    news = list(_departures(changes))
    for name, kind in KINDS.items():
        if kind.query:
            news += [News(kind.level, name, *row) for row in _new_rows(night, before, kind.query, horizon_ms)]
    if not any(one.kind in ("two_writers", "rewound") for one in news):  # a night without history has no row of the view rewinds
        news += _of_changes({("rewound", None): [change for change in changes if change.change == "offset_rewound"]})
    order = list(KINDS)
    return Morning(run, since, sorted(news, key=lambda one: order.index(one.kind)))


def _new_rows(
    night: NightInDuckDB, before: NightInDuckDB | None, query: str, horizon_ms: int
) -> Iterator[tuple[str | None, int, int, list[str]]]:
    """Reason, number, number of groups and names of groups of the rows that the night before lacks."""
    query = query.replace("$horizon_ms", str(horizon_ms))
    rows_before = before.execute(query) if before is not None else night.execute(_NO_ROWS)
    night.connection.register("rows_before", rows_before)
    rows = night.execute(_NEW_ROWS.format(query).replace("$most_names", str(MOST_NAMES)))
    assert rows is not None  # the statement is a SELECT
    for row in rows.to_pylist():
        yield row["reason"], row["number"], row["group_count"], row["groups"] or []


def _departures(changes: Sequence[Change]) -> Iterator[News]:
    """The groups that are gone, and the offsets of the other groups that are gone, by reason."""
    gone = {change.group_id for change in changes if change.change == "group_gone"}
    by_kind: dict[tuple[str, str | None], list[Change]] = defaultdict(list)
    for change in changes:
        if change.change == "group_gone" or (change.change == "offset_gone" and change.group_id not in gone):
            by_kind[f"{change.change.partition('_')[0]}_{_FATES.get(change.why or NOT_KNOWN, 'deleted')}", change.why].append(change)
    yield from _of_changes(by_kind)


def _of_changes(by_kind: Mapping[tuple[str, str | None], Sequence[Change]]) -> Iterator[News]:
    for (kind, reason), changes in by_kind.items():
        groups = sorted({change.group_id for change in changes})
        if changes:
            yield News(KINDS[kind].level, kind, reason, len(changes), len(groups), groups[:MOST_NAMES])
