"""Decodes records of ``__cluster_metadata``: the frame, the record type and the message."""

import re
from typing import Any, NamedTuple

from groupcoord_spark.protocol import errors
from groupcoord_spark.protocol.definition import FieldReader, message_json
from groupcoord_spark.protocol.fields import Int16
from groupcoord_spark.protocol.messages.cluster_metadata import CONTROL_RECORDS, FRAME_VERSION, RECORD_TYPES
from groupcoord_spark.protocol.primitives import read_integer, read_uvarint

_NAMES = {number: re.sub(r"(?<!^)(?=[A-Z])", "_", message.name).upper() for number, message in RECORD_TYPES.items()}


class MetadataRecord(NamedTuple):
    """A decoded record. name: as Kafka prints the record type, for example TOPIC_RECORD."""

    record_type: int
    name: str
    version: int
    fields: dict[str, Any]


def decode_metadata_record(value: bytes | None) -> MetadataRecord:
    """Decode a record value of the metadata log.

    Raises:
        UnknownKeyType: the record type is not known. UnknownValueVersion: the version of the frame or of the message is not known.
        ValueTooShort, ValueTruncated, ValueMalformed: the value cannot be decoded.
    """
    if not value:
        raise errors.ValueTooShort("The record has no value; every record of the metadata log has one.")
    try:
        frame, at = read_uvarint(value, 0)
        if frame != FRAME_VERSION:
            raise errors.UnknownValueVersion(f"The frame has version {frame}; version {FRAME_VERSION} is known.")
        record_type, at = read_uvarint(value, at)
        version, at = read_uvarint(value, at)
    except errors.FieldFault as fault:
        raise errors.ValueTruncated(fault.sentence("The frame of a metadata record")) from fault
    message = RECORD_TYPES.get(record_type)
    if message is None:
        raise errors.UnknownKeyType(f"Record type {record_type} of the metadata log is not known to this release.")
    if not 0 <= version <= message.versions[1]:
        raise errors.UnknownValueVersion(f"{message.name}: version {version} is not known to this release (0 to {message.versions[1]}).")
    try:
        fields, _ = FieldReader(value, message, version).read_struct(message.fields, at)
    except errors.Underflow as fault:
        raise errors.ValueTruncated(fault.sentence(f"{message.name} v{version}")) from fault
    except errors.FieldFault as fault:
        raise errors.ValueMalformed(fault.sentence(f"{message.name} v{version}")) from fault
    return MetadataRecord(record_type, _NAMES[record_type], version, fields)


def decode_metadata_control(control_type: int, value: bytes) -> dict[str, Any] | None:
    """Return the fields of a control record's value in Kafka's JSON, or None for an unknown type. Raises DecodeError."""
    if control_type not in CONTROL_RECORDS:
        return None
    _, message = CONTROL_RECORDS[control_type]
    try:
        version, _ = read_integer(value, 0, Int16)
        if not 0 <= version <= message.versions[1]:
            raise errors.UnknownValueVersion(
                f"{message.name}: version {version} is not known to this release (0 to {message.versions[1]})."
            )
        return message_json(message, version, FieldReader(value, message, version).read_struct(message.fields, 0)[0])
    except errors.FieldFault as fault:
        raise errors.ValueMalformed(fault.sentence(message.name)) from fault


def metadata_json(record: MetadataRecord) -> dict[str, Any]:
    """Return the fields of a record in the JSON of Kafka's own converters."""
    return message_json(RECORD_TYPES[record.record_type], record.version, record.fields)
