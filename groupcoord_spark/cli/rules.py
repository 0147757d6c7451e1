"""The rules that a run applied."""

from __future__ import annotations

from typing import TYPE_CHECKING

from groupcoord_spark.errors import GroupcoordError, UsageError

if TYPE_CHECKING:
    from groupcoord_spark.coordinator.semantics import Semantics
    from groupcoord_spark.warehouse.read import Run


def rules_of(run: Run) -> Semantics:
    """The semantics that a run applied, from its row in ``runs``.

    Raises GroupcoordError for a run of an earlier version of this program that accepted a release which does not exist.
    """
    from groupcoord_spark.coordinator.semantics import semantics_for

    try:
        return semantics_for(run.semantics, run.broker_version).with_settings(run.settings)
    except UsageError as e:
        raise GroupcoordError(f"Run {run.run_id} cannot be judged: {e} Run the nightly again with a release that exists.") from e
