"""A small part of hostile_sizes.py: every log at a hundredth of its size, each as one offsets partition of one night.

The millions of records in one batch, which are looked at one by one, are a thousandth.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tests.running import rows_of, run
from tests.tools.faults.hostile_sizes import CASES

if TYPE_CHECKING:
    from tests.local_session import LocalSession


def test_what_is_around_a_hostile_batch_is_read(local: LocalSession, tmp_path: Path) -> None:
    for number, (name, write) in enumerate(CASES.items()):
        write(tmp_path / "logs" / f"__consumer_offsets-{number}" / f"{0:020}.log", 1000 if "million records" in name else 100)
    run(local, tmp_path / "w", tmp_path / "logs")
    # The state has a group once, and here each offsets partition has the same two.
    commits = {(row["offsets_partition"], row["group_id"]) for row in rows_of(tmp_path / "w", "offset_commits")}
    assert {(number, group_id) for number in range(len(CASES)) for group_id in ("first", "last")} <= commits
