"""Records of the other logs that Kafka keeps for itself as lines of JSON: share groups' states, transactions, the cluster's metadata."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any, Final

import pyarrow.fs as pafs

from groupcoord_spark.dump.json_lines import Counts, JsonLines, Selection, without_data
from groupcoord_spark.errors import UsageError
from groupcoord_spark.log import Chunk, Segment, read_segment
from groupcoord_spark.log.directory import plan_other_topic
from groupcoord_spark.log.files.storage import Location
from groupcoord_spark.protocol import DecodeError
from groupcoord_spark.protocol.cluster_metadata import decode_metadata_control, decode_metadata_record, metadata_json
from groupcoord_spark.protocol.messages import share_state, transaction_state
from groupcoord_spark.protocol.messages.cluster_metadata import CONTROL_RECORDS
from groupcoord_spark.protocol.record_types import NOT_A_CONTROL_RECORD
from groupcoord_spark.sources.inputs import KAFKA_SCHEME

_METADATA_TOPIC: Final = "__cluster_metadata"
_RECORD_TYPES: Final = {"__share_group_state": share_state.RECORD_TYPES, "__transaction_state": transaction_state.RECORD_TYPES}
_PARTITION: Final = re.compile(rf"({'|'.join([*_RECORD_TYPES, _METADATA_TOPIC])})-(0|[1-9][0-9]{{0,9}})")
_FILE: Final = re.compile(r"(?:([0-9]{20})\.log|.*\.checkpoint)")


def topic_of(input_name: str) -> str | None:
    """The other topic of which the input is a partition's directory or a file; None: it is none. Raises InputError as ``Location`` does."""
    if input_name.startswith(KAFKA_SCHEME):
        return None
    location = Location.of(input_name)
    if location.info().type == pafs.FileType.File:
        location = location.parent() if _FILE.fullmatch(location.name) else location
    match = _PARTITION.fullmatch(location.name)
    return match[1] if match else None


def read_partitions(
    inputs: Iterable[str], selection: Selection, counts: Counts, *, with_bytes: bool
) -> Iterator[tuple[JsonLines, Iterable[Chunk]]]:
    """For each input what makes its lines, and its chunks. Of a directory of the metadata log the log is read, without snapshots.

    Raises UsageError for an input that is of none of these topics, InputError for one that cannot be read.
    """
    for input_name in inputs:
        topic, location = topic_of(input_name), Location.of(input_name)
        if topic is None:
            raise UsageError(f"{location.shown} is of the offsets topic, and another INPUT is not. Give inputs of one kind.")
        is_file = location.info().type == pafs.FileType.File
        number = int((location.parent() if is_file else location).name.rpartition("-")[2])
        lines = OtherTopicLines(topic, number, selection, counts, with_bytes=with_bytes)
        if is_file:
            match = _FILE.fullmatch(location.name)
            base_offset = int(match[1]) if match and match[1] else 0
            yield lines, read_segment(Segment(location.uri, int(location.info().size), number, base_offset))
        else:
            for log in plan_other_topic(topic, [location]):
                yield lines, chain.from_iterable(map(read_segment, log.segments))


class OtherTopicLines(JsonLines):
    """Makes the lines of a partition of another topic. They have ``topic`` and ``partition`` in place of ``offsets_partition``."""

    expected_doubts = frozenset({"control_type_unknown"})
    _has_loops = False
    _control_names: Mapping[int, str | None] = {
        NOT_A_CONTROL_RECORD: None,
        **{number: name for number, (name, _) in CONTROL_RECORDS.items()},
    }

    def __init__(self, topic: str, partition: int, selection: Selection, counts: Counts, *, with_bytes: bool = False) -> None:
        super().__init__(partition, selection, counts, with_bytes=with_bytes)
        self._topic = topic
        self._record_types = _RECORD_TYPES.get(topic, {})
        self._place = {"topic": topic, "partition": partition}

    def _shown_key(self, key: bytes | None) -> tuple[dict[str, Any] | None, int, DecodeError | None]:
        return (None, -1, None) if self._topic == _METADATA_TOPIC else super()._shown_key(key)

    def _shown_value(self, key_type: int, value: bytes) -> tuple[dict[str, Any] | None, DecodeError | None]:
        if self._topic != _METADATA_TOPIC:
            return super()._shown_value(key_type, value)
        try:
            record = decode_metadata_record(value)
        except DecodeError as refusal:
            return without_data("version", value), refusal
        return {"type": record.name, "version": record.version, "data": metadata_json(record)}, None

    def _shown_control_value(self, control: int, value: bytes | None) -> dict[str, Any] | None:
        try:
            return {"data": decode_metadata_control(control, value)} if self._topic == _METADATA_TOPIC and value else None
        except DecodeError:
            return {"data": None}
