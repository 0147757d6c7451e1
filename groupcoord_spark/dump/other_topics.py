"""Records of the other logs that Kafka keeps for itself as lines of JSON: share groups' states, transactions, the cluster's metadata.

Records of MirrorMaker's checkpoints and offset syncs are lines of JSON too, or the text that Kafka's formatters print.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import chain
from typing import Any, Final

import pyarrow.fs as pafs

from groupcoord_spark.coordinator.releases import Release
from groupcoord_spark.dump.json_lines import Counts, JsonLines, Selection, without_data
from groupcoord_spark.errors import UsageError
from groupcoord_spark.log import Chunk, Records, Segment, read_segment
from groupcoord_spark.log.directory import plan_other_topic
from groupcoord_spark.protocol import DecodeError
from groupcoord_spark.protocol.cluster_metadata import decode_metadata_control, decode_metadata_record, metadata_json
from groupcoord_spark.protocol.columnar import Int32s
from groupcoord_spark.protocol.definition import message_json
from groupcoord_spark.protocol.messages import share_state, transaction_state
from groupcoord_spark.protocol.messages.cluster_metadata import CONTROL_RECORDS
from groupcoord_spark.protocol.mirror_maker import decode_mirror_key, decode_mirror_value, is_mirror_topic, messages_of, mirror_text
from groupcoord_spark.protocol.record_types import NOT_A_CONTROL_RECORD
from groupcoord_spark.protocol.transaction_state import state_name
from groupcoord_spark.sources.inputs import KAFKA_SCHEME
from groupcoord_spark.storage.location import Location

TRANSACTION_TOPIC: Final = "__transaction_state"
NAMES_STATES_SINCE: Final[Release] = (4, 4)
"""The first release whose formatter prints the name of a transaction's state (KAFKA-20712)."""

_METADATA_TOPIC: Final = "__cluster_metadata"
_RECORD_TYPES: Final = {"__share_group_state": share_state.RECORD_TYPES, TRANSACTION_TOPIC: transaction_state.RECORD_TYPES}
_PARTITION: Final = re.compile(r"([a-zA-Z0-9._-]{1,249})-(0|[1-9][0-9]{0,9})")
_FILE: Final = re.compile(r"(?:([0-9]{20})\.log|.*\.checkpoint)")


def topic_of(input_name: str) -> str | None:
    """Return the topic of an input that is a partition directory or a file of another topic, else None. Raises InputError as
    ``Location`` does."""
    if input_name.startswith(KAFKA_SCHEME):
        return None
    location = Location.of(input_name)
    if location.info().type == pafs.FileType.File:
        location = location.parent() if _FILE.fullmatch(location.name) else location
    match = _PARTITION.fullmatch(location.name)
    return match[1] if match and (match[1] in {*_RECORD_TYPES, _METADATA_TOPIC} or is_mirror_topic(match[1])) else None


def read_partitions(
    inputs: Iterable[str],
    selection: Selection,
    counts: Counts,
    *,
    with_bytes: bool,
    form: str | None = None,
    release: Release | None = None,
) -> Iterator[tuple[JsonLines, Iterable[Chunk]]]:
    """Yield for each input what makes its lines, and its chunks. Of a directory of the metadata log the log is read, without snapshots.

    Args:
        form: json or text; None: text for the topics of MirrorMaker, unless the lines have bytes, and JSON for the others.
        release: The release whose formatter prints states of transactions; None: releases before 4.4.
    Raises:
        UsageError: An input is outside of these topics, or a topic has no text, or no form that depends on the release.
        InputError: An input cannot be read.
    """
    for input_name in inputs:
        topic, location = topic_of(input_name), Location.of(input_name)
        if topic is None:
            raise UsageError(f"{location.shown} is of the offsets topic, and another INPUT is not. Give inputs of one kind.")
        is_file = location.info().type == pafs.FileType.File
        number = int((location.parent() if is_file else location).name.rpartition("-")[2])
        if form == "text" and not is_mirror_topic(topic):
            raise UsageError(f"{location.shown}: only records of MirrorMaker's topics can be printed as text. Leave out --output text.")
        if release is not None and topic != TRANSACTION_TOPIC:
            raise UsageError(f"{location.shown}: --broker-version is for records of {TRANSACTION_TOPIC}. Leave it out.")
        lines = OtherTopicLines(topic, number, selection, counts, with_bytes=with_bytes)
        lines.names_states = release is not None and release >= NAMES_STATES_SINCE
        if is_mirror_topic(topic):
            lines = MirrorMakerLines(topic, number, selection, counts, with_bytes=with_bytes)
            lines.is_text = form == "text" or (form is None and not with_bytes)
        if is_file:
            match = _FILE.fullmatch(location.name)
            base_offset = int(match[1]) if match and match[1] else 0
            yield lines, read_segment(Segment(location.uri, int(location.info().size), number, base_offset))
        else:
            for log, _ in plan_other_topic(topic, [location]):
                yield lines, chain.from_iterable(map(read_segment, log.segments))


class OtherTopicLines(JsonLines):
    """Makes the lines of a partition of another topic. They have ``topic`` and ``partition`` in place of ``offsets_partition``."""

    expected_doubts = frozenset({"control_type_unknown"})
    names_states = False
    """Whether lines have the name of a transaction's state in place of its number."""

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
            shown, refusal = super()._shown_value(key_type, value)
            if self.names_states and shown and shown["data"]:
                shown["data"]["transactionStatus"] = state_name(shown["data"]["transactionStatus"])
            return shown, refusal
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


class MirrorMakerLines(OtherTopicLines):
    """Makes the lines of a partition with MirrorMaker's checkpoints or offset syncs.

    is_text: lines are the text that Kafka's formatter prints. The formatter fails at a record that cannot be decoded and at a tombstone;
    here such a record is a line of JSON.
    """

    is_text = False

    def line(self, records: Records, row: int, leader_epoch: Int32s | None) -> bytes:
        if self.is_text and records.control_type[row] == NOT_A_CONTROL_RECORD:
            with suppress(DecodeError):
                key, value = decode_mirror_key(self._topic, records.key.row(row)), records.value.row(row)
                if value is not None:
                    return f"{mirror_text(key, decode_mirror_value(self._topic, value))}\n".encode()
        return super().line(records, row, leader_epoch)

    def _shown_key(self, key: bytes | None) -> tuple[dict[str, Any] | None, int, DecodeError | None]:
        try:
            return {"data": message_json(messages_of(self._topic)[0], 0, decode_mirror_key(self._topic, key))}, 0, None
        except DecodeError as refusal:
            return None if key is None else {"data": None}, -1, refusal

    def _shown_value(self, key_type: int, value: bytes) -> tuple[dict[str, Any] | None, DecodeError | None]:
        try:
            return {"data": message_json(messages_of(self._topic)[1], 0, decode_mirror_value(self._topic, value))}, None
        except DecodeError as refusal:
            return {"data": None}, refusal
