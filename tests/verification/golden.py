"""Golden corpora as the comparer meets them: the state that their records replay to, and real brokers' answers as a file has them."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from groupcoord_spark.coordinator import PartitionReplay, PartitionState, semantics_for
from groupcoord_spark.pipeline.exchange.state_rows import WRITTEN_ROWS, state_rows
from groupcoord_spark.verification import StateOfRun, state_of
from groupcoord_spark.warehouse import TABLES, open_warehouse
from tests.coordinator.records import GOLDEN, recorded
from tests.warehouse.nights import night

STATE_TABLES = ("committed_offsets", "pending_offsets", "orphan_offsets", "groups", "members", "assignments")
PARTS = ("groups", "offsets", "pending", "topic_ids")


def write_warehouse(corpus: str, place: Path) -> str:
    """Return a warehouse with one run of the corpus, replayed record by record."""
    facts = json.loads((GOLDEN / corpus / "corpus.json").read_text(encoding="utf-8"))
    states: dict[int, PartitionState] = {}
    for offsets_partition, records in recorded(GOLDEN / corpus).items():
        replay = PartitionReplay(semantics_for(facts["coordinator"], facts["broker"]))
        for record in records:
            assert record.offset is not None
            record.apply_to(replay, record.offset)
        states[offsets_partition] = replay.finish()
    names = {topic_id: name for state in states.values() for topic_id, name in state.topic_names.items()}
    rows: dict[str, list[dict[str, Any]]] = {table: [] for table in STATE_TABLES}
    for offsets_partition, state in states.items():
        rows_of_state = {**state_rows(state, None), "assignments": state.assignments(names)}
        for table in STATE_TABLES:
            by_name = (dict(zip(WRITTEN_ROWS[table], row, strict=True)) for row in rows_of_state[table])
            rows[table] += [_columns(table, {**row, "offsets_partition": offsets_partition}) for row in by_name]
    night(place, "golden", rows, semantics=facts["coordinator"], broker_version=facts["broker"])
    return str(place)


def _columns(table: str, row: dict[str, Any]) -> dict[str, Any]:
    """Return what of a replayed row the table holds."""
    return {name: value for name, value in row.items() if {name, name.removesuffix("_ms")} & TABLES[table].by_name.keys()}


@cache
def state_in(warehouse: str) -> StateOfRun:
    return state_of(open_warehouse(warehouse), "golden")


def answers_of(corpus: str) -> dict[str, Any]:
    """Return what the corpus's broker answered, as the object that a file of answers holds."""
    folders = [GOLDEN / corpus / "oracle", GOLDEN / corpus / "oracle" / "reloaded"]
    parts: dict[str, Any] = {}
    for part in PARTS:
        path = next((folder / f"{part}.json" for folder in folders if (folder / f"{part}.json").exists()), None)
        if path is not None:
            parts[part] = json.loads(path.read_text(encoding="utf-8"))
    if "offsets" in parts:
        # answers made of a coordinator's own classes also contain what no request is answered with
        meta = json.loads((folders[0] / "meta.json").read_text(encoding="utf-8")) if (folders[0] / "meta.json").exists() else {}
        groupless = set(meta.get("groups_without_state", []))
        parts["offsets"] = [row for row in parts["offsets"] if row["group"] not in groupless]
    return parts
