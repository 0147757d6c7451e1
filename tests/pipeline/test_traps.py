"""Traps that the log and the last run show: keys of type 0 that survive, and a retention that changed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from groupcoord_spark.coordinator.semantics import semantics_for
from tests.conftest import DAY_MS
from tests.golden_answers import Corpus
from tests.running import rows_of, run

if TYPE_CHECKING:
    from tests.local_session import LocalSession


def test_offsets_under_keys_of_type_0_may_come_back_and_a_new_retention_is_told(local: LocalSession, tmp_path: Path) -> None:
    corpus = Corpus("era-0.8.2")
    last = {(r["partition"], tuple(r["key"]["data"].values())): r for r in corpus.records if r["key"] and r["key"]["type"] == 0}
    surviving = {tuple(r["key"]["data"][name] for name in ("group", "topic", "partition")) for r in last.values() if r["value"]}
    run(local, tmp_path / "w", corpus.logs, with_history=False)
    first = rows_of(tmp_path / "w", "offset_expirations")
    assert {(row["group_id"], row["topic"], row["partition"]) for row in first if row["may_come_back"]} == surviving
    assert {row["retention_changed"] for row in first} == {False}
    # Brokers before 0.9 write tombstones of type 0 too: those are final.
    run(local, tmp_path / "w", corpus.logs, semantics=semantics_for(None, "0.8.2"), with_history=False, retention_ms=DAY_MS)
    second = rows_of(tmp_path / "w", "offset_expirations")
    assert {(row["may_come_back"], row["retention_changed"]) for row in second} == {(False, True)}
