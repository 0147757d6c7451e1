"""Requests, answers and rows of a timeline as plain values for JSON."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any

from groupcoord_spark.protocol import decode_key, decode_value, key_json, value_json
from groupcoord_spark.simulator.errors import Error
from groupcoord_spark.simulator.records import WrittenRecord
from groupcoord_spark.simulator.scenario.playing import TimelineRow


def row_json(row: TimelineRow) -> dict[str, Any]:
    """A row of a timeline. docs/reference/scenario-language.md lists its fields.

    Times are milliseconds since the start of the scenario. Bytes are base64, an error is its name and its code.
    """
    return {
        "id": row.id,
        "at_ms": row.at_ms,
        "kind": row.kind,
        "who": row.who,
        "what": row.what,
        "answer": row.answer,
        "state_before": row.state_before,
        "generation_before": row.generation_before,
        "state": row.state,
        "generation": row.generation,
        "request": None if row.request is None else {"type": type(row.request).__name__, **plain(row.request)},
        "response": None if row.response is None else plain(row.response),
        "timers": [{"kind": timer.kind.value, "member_id": timer.member_id or None, "due_ms": timer.due_ms} for timer in row.timers],
        "records": list(map(record_json, row.records)),
    }


def record_json(record: WrittenRecord) -> dict[str, Any]:
    """A record that the coordinator wrote, its key and value in Kafka's JSON."""
    value = None
    if record.key_type is not None and record.value_bytes is not None:
        decoded = decode_value(record.key_type, record.value_bytes)
        value = value_json(decoded) if decoded is not None else None
    return {
        "offsets_partition": record.offsets_partition,
        "record_offset": record.record_offset,
        "control": record.control,
        "key_type": record.key_type,
        "key": None if record.key_bytes is None else key_json(decode_key(record.key_bytes)),
        "value_version": record.value_version,
        "value": value,
    }


def plain(value: Any) -> Any:
    """The value as JSON can have it: dataclasses and named tuples are objects, and keys of two parts are ``topic-partition``."""
    if isinstance(value, Error):
        return {"name": value.name, "code": value.value}
    if isinstance(value, Enum):
        return value.name
    if is_dataclass(value):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return {name: plain(part) for name, part in value._asdict().items()}
    if isinstance(value, Mapping):
        return {"-".join(map(str, key)) if isinstance(key, tuple) else str(key): plain(part) for key, part in value.items()}
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, Iterable) and not isinstance(value, str):
        return list(map(plain, value))
    return value
