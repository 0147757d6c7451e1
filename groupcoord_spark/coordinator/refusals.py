"""Records that a broker's loader rejects or skips because of their own content, whatever records preceded them."""

from collections.abc import Mapping
from typing import Any

from groupcoord_spark.coordinator.groups.classic import read_classic_group
from groupcoord_spark.coordinator.groups.group import Refusal
from groupcoord_spark.coordinator.semantics import Semantics
from groupcoord_spark.protocol.definition import DecodedValue
from groupcoord_spark.protocol.errors import BEYOND_LIMITS, ValueBeyondLimits
from groupcoord_spark.protocol.record_types import KeyType

RULE_OF_REASON: Mapping[str, str] = {
    "unknown_key_type": "R-1.6",
    "null_key": "R-1.7",
    "key_too_short": "R-1.8",
    "key_truncated": "R-1.8",
    "key_malformed": "R-1.8",
    "leaked_control_record": "R-1.8",
    "value_too_short": "R-1.9",
    "unknown_value_version": "R-1.9",
    "value_truncated": "R-1.10",
    "value_malformed": "R-1.10",
    "value_beyond_limits": "R-1.10",
}
"""Reason of a decoder -> rule of docs/reference/replay-rules.md."""


def refusal_of_type_or_version(semantics: Semantics, key_type: int, value_version: int | None) -> Refusal | None:
    """Return why this broker does not load records of a key type and value version (R-1.6, R-1.9), or None if it does.

    value_version: None for a tombstone.
    """
    if key_type not in semantics.known_key_types:
        ending = " and could not have loaded the partition" if semantics.unknown_key_type_fails_load else ": it skips the record"
        return Refusal("R-1.6", f"Kafka {semantics.broker_version} does not know key type {key_type}{ending}.")
    if value_version is None or key_type > KeyType.GROUP_METADATA or semantics.accepts_value(key_type, value_version):
        return None
    broker = f"Kafka {semantics.broker_version}"
    if key_type == KeyType.GROUP_METADATA:
        return Refusal("R-1.9", f"{broker} cannot load GroupMetadataValue version {value_version}.")
    newest = semantics.newest_offset_value[key_type]
    return Refusal(
        "R-1.9",
        f"An offset of key type {key_type} has value version {value_version}; "
        f"{broker} loads up to {newest} there and could not have loaded the partition.",
    )


def fault_beyond_limits(value: DecodedValue | None, semantics: Semantics) -> ValueBeyondLimits | None:
    """Return why this broker cannot read a value that other releases read (R-1.10), or None for a readable value or a tombstone."""
    if value is None or not semantics.limits_values:
        return None
    return next((ValueBeyondLimits(doubt.detail) for doubt in value.doubts if doubt.code == BEYOND_LIMITS), None)


def refusals_of_group_value(value_version: int, value: Mapping[str, Any], semantics: Semantics) -> list[Refusal]:
    """Everything that a loader refuses in the decoded value of a classic group (R-2.1 to R-2.4)."""
    return read_classic_group(value_version, value, semantics)[1]
