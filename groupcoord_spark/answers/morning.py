"""What is new since the last night that differs, the worst first: each kind of news is one row, with the command that shows more."""

from __future__ import annotations

import shlex
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import pyarrow as pa

from groupcoord_spark.answers.findings import KINDS, NEWS, Kind
from groupcoord_spark.answers.night_changes import NO_LOG, NOT_KNOWN, PARTITION_MISSING, Change, last_night_that_differs
from groupcoord_spark.warehouse.read import Run, Warehouse
from groupcoord_spark.warehouse.sql import NightInDuckDB
from groupcoord_spark.wording import first_of

MOST_NAMES: Final = 20
"""News have the names of up to this many groups."""


_FATES: Final = {
    **dict.fromkeys((NOT_KNOWN, PARTITION_MISSING, "vanished", "topic_begun_anew"), "vanished"),
    **dict.fromkeys(("expired", "expiry_due"), "expired"),
    NO_LOG: "gone",
}
"""Why a group or an offset is gone -> the second word of its kind of news; every other reason is a deletion."""

_NEW_ROWS: Final = f"""
SELECT reason, CAST(SUM(number) AS BIGINT) AS number, COUNT(DISTINCT group_id) AS group_count,
  COALESCE(list_slice(list_sort(list(DISTINCT group_id) FILTER (group_id IS NOT NULL)), 1, {MOST_NAMES}), []) AS groups
FROM rows_now n ANTI JOIN rows_before b ON n.subject = b.subject AND n.group_id IS NOT DISTINCT FROM b.group_id
  AND n.reason IS NOT DISTINCT FROM b.reason
GROUP BY reason ORDER BY number DESC, reason
"""


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
        of_groups = f": {first_of(self.groups, count=self.group_count)}" if self.groups else ""
        return f"{self.number:,} {self.clause}{of_groups}"

    @property
    def clause(self) -> str:
        """The sentence without the number and the groups."""
        return f"{KINDS[self.kind].clause(self.number)}{f' ({self.reason})' if self.reason else ''}"

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


def morning(warehouse: Warehouse, run: Run, horizon_ms: int, views: Mapping[str, pa.Table] | None = None) -> Morning:
    """What is new in a night since the last night that differs.

    Args:
        warehouse, run: the night.
        horizon_ms: how long before its expiration an offset is news, once.
        views: rows of views of the night that are known already.
    Raises:
        WarehouseError: the tables of a night cannot be read.
    """
    since, changes = last_night_that_differs(warehouse, run) or (None, [])
    night = _NewsRows(NightInDuckDB(warehouse, run=run), horizon_ms, dict(views or {}))
    earlier_night = None if since is None else _NewsRows(NightInDuckDB(warehouse, run=since), horizon_ms, {})
    news = list(_departures(changes))
    for name, kind in NEWS.items():
        # Most kinds have no rows in most nights, and the views over the history take most of the time: the night before comes second.
        if (kind.query or kind.subject) and (rows := night.of(kind)).num_rows:
            night.connection.register("rows_now", rows)
            night.connection.register("rows_before", rows.slice(0, 0) if earlier_night is None else earlier_night.of(kind))
            new = night.connection.sql(_NEW_ROWS).to_arrow_table()
            news += [News(kind.level, name, *row) for row in zip(*(column.to_pylist() for column in new.columns), strict=True)]
    if not any(item.kind in ("two_writers", "rewound") for item in news):  # a night without history has no row of the view rewinds
        news += _of_changes({("rewound", None): [change for change in changes if change.change == "offset_rewound"]})
    order = list(KINDS)
    return Morning(run, since, sorted(news, key=lambda item: order.index(item.kind)))


class _NewsRows:
    """The rows of the kinds of news in one night. A view is asked once, however many kinds rest on it."""

    def __init__(self, night: NightInDuckDB, horizon_ms: int, views: dict[str, pa.Table]) -> None:
        self.connection = night.connection
        self._night = night
        self._horizon_ms = horizon_ms
        self._views = views

    def of(self, kind: Kind) -> pa.Table:
        """subject, group_id, reason and number."""
        if not kind.subject:
            return self._night.rows(kind.query.replace("$horizon_ms", str(self._horizon_ms)))
        if kind.table not in self._views:
            self._views[kind.table] = self._night.rows(f"FROM {kind.table}")
        self.connection.register("rows_of_view", self._views[kind.table])
        return self.connection.sql(kind.query_of_view).to_arrow_table()


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
