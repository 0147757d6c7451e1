"""The tables of the report: title, the question that each answers, what a run must have for it. The rows are SQL in the folder sql."""

from dataclasses import dataclass
from importlib.resources import files
from typing import Final, Literal

Need = Literal["history", "log", "log_ends"]

MOST_ROWS: Final = 20_000
"""Maximum number of rows of one table in the page, the worst first. The page shows the total number next to it."""


@dataclass(frozen=True, slots=True)
class ReportTable:
    """One table of the report."""

    name: str
    section: str
    """Id of the page section of the table."""
    title: str
    about: str
    """Description of the rows and of their limits, in a sentence or two."""
    needs: Need | None = None
    """What the tables must hold for the rows to mean anything; None: every night has it."""

    @property
    def query(self) -> str:
        """The statement, worst rows first."""
        return (files(__package__) / "sql" / f"{self.name}.sql").read_text(encoding="utf-8").strip()


TABLES: Final = (
    ReportTable(
        "expiring",
        "expiry",
        "What goes, and when",
        "Committed offsets by group and topic, and groups (no topic), in their present state.",
        "log",
    ),
    ReportTable("expiring_days", "expiry", "What goes on each day", "Offsets and groups by day (UTC): the rows of the calendar.", "log"),
    ReportTable("kept", "expiry", "What stays, and why", "What no cleanup takes while the group stays as it is.", "log"),
    ReportTable(
        "lag",
        "lag",
        "Lag of each partition",
        "Against the newest sample of log ends. share of log near 100 %: the group is about to lose data. hours to loss: until the log"
        " begins after the committed offset, if the group stands still.",
        "log_ends",
    ),
    ReportTable(
        "lag_by_group",
        "lag",
        "Lag of each group",
        "The sum of the partitions with an answer (see remark in the table above), with ≥ where the sample lacks a partition of the group.",
        "log_ends",
    ),
    ReportTable("lag_history", "lag", "Lag at each sample", "Below 100 % completeness the lag is an upper bound.", "log_ends"),
    ReportTable(
        "rewinds",
        "trouble",
        "Committed offsets that went back",
        "A drop of a committed offset: a reset is mostly meant, two_writers and late_commit are not.",
        "history",
    ),
    ReportTable(
        "skips",
        "trouble",
        "Records that were never read",
        "A committed offset that moved forward without its records being read, with how certain that is.",
        "history",
    ),
    ReportTable(
        "stalled",
        "trouble",
        "Partitions that stand still",
        "A member has the partition, the group moves, the partition does not. A partition that nobody writes to looks the same.",
        "history",
    ),
    ReportTable(
        "open_transactions",
        "trouble",
        "Open transactions",
        "Their offsets do not count yet and do not expire, and the log cleaner stops before them.",
        "log",
    ),
    ReportTable(
        "rebalance_storms",
        "trouble",
        "Rebalances",
        "The generation is a counter, so the number of rebalances survives compaction; causes are known of those in the history.",
        "history",
    ),
    ReportTable(
        "shared_group_id",
        "trouble",
        "Group ids that two applications share",
        "Members that subscribe to disjoint topics: each rebalance of one stops the other.",
    ),
    ReportTable(
        "topic_recreated", "trouble", "Topics deleted and created again", "stale offsets still carry an older topic id.", "history"
    ),
    ReportTable(
        "assigned_never_committed",
        "trouble",
        "Partitions without a committed offset",
        "A member has the partition. commits above 0: an offset was there and was removed, or its transaction did not commit.",
    ),
    ReportTable(
        "orphan_topics",
        "trouble",
        "Topics that nobody reads",
        "Groups have committed offsets of them, and no group with members reads them now.",
    ),
    ReportTable("groups", "groups", "Groups", "Every group, those with most problems first. completeness refers to bytes."),
    ReportTable("members", "groups", "Members", "partitions counts what a member has now: partitions, active or standby tasks."),
    ReportTable(
        "offsets", "groups", "Committed offsets", "lag is known where the run has log ends. stays because: why no cleanup takes it."
    ),
    ReportTable(
        "events",
        "groups",
        "What happened",
        "Rebalances, offsets that went back, and removals with their causes. Causes are inferred: `groupcoord why` has the evidence.",
        "history",
    ),
    ReportTable(
        "idle_groups", "groups", "Groups without members", "A simple group (offsets only) may well have a reader, which no record shows."
    ),
    ReportTable(
        "topic_readers",
        "groups",
        "Who reads which topic",
        "A group that has a committed offset, a partition or a subscription. A subscription by name shows only for topics of some table.",
    ),
    ReportTable(
        "group_days",
        "groups",
        "Groups day by day",
        "Days (UTC) with a record of the group, and the state that its last record left. No state: commits alone.",
        "history",
    ),
    ReportTable(
        "owners",
        "owners",
        "Who had which partition",
        "From the group's own records. An end is empty where the member still has the partition (is current), or where no record has it."
        f" Share and streams groups have no rows. The first groups, until they have {MOST_ROWS:,} rows.",
        "history",
    ),
    ReportTable(
        "owner_commits", "owners", "Commits of these groups", "Commits that counted; those that lie close together are one row.", "history"
    ),
    ReportTable(
        "commit_hours",
        "traffic",
        "Commits in each hour",
        "Of all groups (UTC). Below 100 % completeness the counts are lower bounds.",
        "history",
    ),
    ReportTable("hot_committers", "traffic", "Who writes most", "duplicate share: commits that repeat an offset.", "history"),
    ReportTable(
        "group_templates",
        "traffic",
        "Bytes by group template",
        "Group ids with <n> and <uuid> in place of numbers and UUIDs, and what they cost in the offsets topic.",
        "history",
    ),
    ReportTable(
        "client_inventory",
        "clients",
        "Members by client",
        "library is a guess from the usual form of ids, and empty where the ids are the user's own. group id: the first of the groups.",
    ),
    ReportTable(
        "protocol_readiness",
        "clients",
        "Ready for the consumer protocol",
        "Classic groups of consumers, and what keeps them from KIP-848. The bounds of the session timeout are the broker's defaults.",
    ),
    ReportTable(
        "no_leader_epoch",
        "clients",
        "Offsets without a leader epoch",
        "Their consumers cannot notice that a log was truncated after an unclean leader election.",
    ),
    ReportTable(
        "commit_notes",
        "clients",
        "Notes in the metadata of commits",
        "kind is a guess from the form of the text: stream times of Kafka Streams, offsets that parallel-consumer has done beyond the"
        " committed one.",
    ),
    ReportTable(
        "completeness",
        "trust",
        "Records read, by offsets partition",
        "completeness: share of all records ever written that the history has.",
        "log",
    ),
    ReportTable("health", "trust", "Findings of the doctor", "Why the offsets topic is large, slow or stuck, and what mends it.", "log"),
    ReportTable("warnings", "trust", "Doubts", "What was accepted with a doubt, and what a broker would skip, by code."),
    ReportTable("quarantined", "trust", "What could not be read", "Faults by reason; no record is dropped silently."),
    ReportTable("nights", "trust", "Runs", "The finished runs up to this one."),
)
"""In the order of the page, section by section."""

BY_NAME: Final = {table.name: table for table in TABLES}
