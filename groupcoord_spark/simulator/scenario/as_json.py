"""Requests, answers and rows of a timeline as plain values for JSON."""

import base64
from collections.abc import Collection, Iterable, Mapping
from enum import Enum
from typing import Any, Final

from msgspec import Struct

from groupcoord_spark.protocol import decode_key, decode_value, key_json, value_json
from groupcoord_spark.simulator.messages import Error, WrittenRecord, requests
from groupcoord_spark.simulator.messages.answers import Answer
from groupcoord_spark.simulator.scenario.playing import TimelineRow


def row_json(row: TimelineRow) -> dict[str, Any]:
    """Convert a timeline row. docs/reference/scenario-language.md lists its fields.

    Times are milliseconds since the start of the scenario. Bytes are base64, an error is its name and its code.
    """
    return {
        **{name: getattr(row, name) for name in ("id", "at_ms", "kind", "who", "what", "answer")},
        **{name: getattr(row, name) for name in ("state_before", "generation_before", "state", "generation")},
        "request": None if row.request is None else _request_json(row.request),
        "response": None if row.response is None or row.request is None else response_json(row.request, row.response),
        "timers": [{"kind": timer.kind.value, "member_id": timer.member_id or None, "due_ms": timer.due_ms} for timer in row.timers],
        "records": list(map(record_json, row.records)),
    }


def _request_json(request: requests.Request) -> dict[str, Any]:
    fields_of_request = plain(request)
    version = fields_of_request.pop("version")
    return {"type": type(request).__name__, **fields_of_request, "version": version}


_FIELDS_OF_ANSWERS: Final[Mapping[type, Mapping[str, int]]] = {
    requests.JoinGroup: {"protocol_type": 7, "skip_assignment": 9, "group_instance_id": 5},
    requests.SyncGroup: {"protocol_type": 5, "protocol": 5},
    requests.LeaveGroup: {"members": 3},
    requests.OffsetFetch: {"leader_epoch": 5},
    requests.DescribeGroups: {"group_instance_id": 4},
    requests.ListGroups: {"state": 4, "group_type": 5},
}
"""Request -> field of its answer -> the first version that has the field, for fields that not every version has."""


def response_json(request: requests.Request, answer: Answer) -> dict[str, Any]:
    """Convert an answer, with the fields of its request's version."""
    since = _FIELDS_OF_ANSWERS.get(type(request), {})
    lacking = frozenset() if request.version is None else {name for name, first in since.items() if request.version < first}
    response: dict[str, Any] = _without(plain(answer), lacking)
    return response


def _without(value: Any, names: Collection[str]) -> Any:
    if isinstance(value, dict):
        return {name: _without(part, names) for name, part in value.items() if name not in names}
    return [_without(part, names) for part in value] if isinstance(value, list) else value


def record_json(record: WrittenRecord) -> dict[str, Any]:
    """Convert a record that the coordinator wrote, with key and value in Kafka's JSON."""
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
    """Convert a value to JSON types: structs and named tuples become objects, and keys of two parts become ``topic-partition``."""
    if isinstance(value, Error):
        return {"name": value.name, "code": value.value}
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, Struct):
        return {name: plain(getattr(value, name)) for name in value.__struct_fields__}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return {name: plain(part) for name, part in value._asdict().items()}
    if isinstance(value, Mapping):
        return {"-".join(map(str, key)) if isinstance(key, tuple) else str(key): plain(part) for key, part in value.items()}
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, Iterable) and not isinstance(value, str):
        return list(map(plain, value))
    return value
