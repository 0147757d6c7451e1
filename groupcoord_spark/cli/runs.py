"""``groupcoord runs``: the runs and point-in-time runs of a warehouse."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from groupcoord_spark.cli.options import Common, command, common_options
from groupcoord_spark.cli.render import moment

if TYPE_CHECKING:
    from groupcoord_spark.warehouse.read import Run

STORED: Final = (
    *("input_kind", "inputs", "semantics", "broker_version", "records_read", "records_decoded", "records_quarantined", "bytes_read"),
    *("groups", "warnings", "version"),
)
NAMES: Final = ("run_id", "kind", "as_of", "started_at", "finished_at", *STORED, "is_kept", "cluster")
SHOWN: Final = ("as_of", "kind", "run_id", "input_kind", "records_read", "records_quarantined", "warnings", "groups", "version", "is_kept")
TITLES: Final = ("AS-OF", "KIND", "RUN", "INPUT", "RECORDS", "QUARANTINED", "DOUBTS", "GROUPS", "VERSION", "TABLES")


@command(epilog="Example: groupcoord runs --output json")
@common_options
def runs(common: Common) -> None:
    """List the runs of a cluster, or of all clusters, newest first.

    DOUBTS counts the rows of warnings that the run wrote, QUARANTINED its records that could not be read or decoded. VERSION is the version
    of groupcoord that made the run. TABLES is `dropped` for a run whose tables `maintain` has dropped: the run itself stays in the list.
    """
    from groupcoord_spark.warehouse.read import open_warehouse

    warehouse = open_warehouse(common.warehouse)
    clusters = warehouse.clusters() if common.cluster is None else [common.cluster]
    several = len(clusters) > 1
    rows = [_row(run) for run in reversed(warehouse.finished_runs(None if several else warehouse.named_cluster(common.cluster)))]
    names, titles = (("cluster", *SHOWN), ("CLUSTER", *TITLES)) if several else (SHOWN, TITLES)
    cells = [(*(row[name] for name in names[:-1]), "kept" if row["is_kept"] else "dropped") for row in rows]
    common.show(NAMES, ([row[name] for name in NAMES] for row in rows), titles=titles, cells=cells)


def _row(run: Run) -> dict[str, Any]:
    # Times as numbers: their datetimes import pandas, which a read command should not pay for.
    started_at = run.row["started_at"].cast("int64")[0].as_py() // 1000
    return {
        "run_id": run.run_id,
        "kind": run.kind,
        "as_of": moment(run.as_of_ms),
        "started_at": moment(started_at),
        "finished_at": moment(run.finished_at_ms),
        **{name: run.row[name][0].as_py() for name in STORED},
        "is_kept": run.is_kept,
        "cluster": run.cluster,
    }
