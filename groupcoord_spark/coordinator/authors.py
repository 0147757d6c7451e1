"""A sentence for the user where the key types and value versions show that another coordinator wrote the records."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from groupcoord_spark.coordinator.semantics import Semantics
from groupcoord_spark.protocol.record_types import MODERN_KEY_TYPES, KeyType

# A key type that no supported release loads says nothing about the writer.
_KEY_TYPES_OF_JAVA = MODERN_KEY_TYPES - {KeyType.SHARE_GROUP_PARTITION_METADATA}
_OFFSET_VALUE_OF_4_1 = 4
# Version 1 is no sign of an old broker: every release since 0.9 writes it for commits with an explicit expiry.
_OFFSET_VALUES_OF_OLD_BROKERS = (2, 3)
# Version 3 is no sign of an old broker: every release since 2.3 writes it.
_GROUP_VALUES_OF_OLD_BROKERS = (0, 1, 2)


def other_coordinator(semantics: Semantics, records: Mapping[tuple[int, int], int]) -> str | None:
    """A sentence that says why the records were probably written by another coordinator; None: nothing speaks against ``semantics``.

    Old records beside new ones say nothing against a new broker, because the topic stays through upgrades.

    Args:
        semantics: The rules that the run applies.
        records: (key type, value version) -> number of records. Value version -1: tombstones.
    """
    java_counts = dict(_only_java(records))
    if semantics.name == "scala":
        if not java_counts:
            return None
        return (
            f"Only Kafka 4.x, or 3.7 to 3.9 with the new coordinator switched on, writes {_listed(java_counts)};"
            f" the rules applied are those of {semantics.broker_version}."
            " Choose --semantics java, or the --broker-version of the brokers as they are now."
        )
    old_counts = {} if java_counts else dict(_only_older(semantics, records))
    if not old_counts:
        return None
    return (
        f"Brokers older than the chosen {semantics.broker_version} wrote {_listed(old_counts)}, and nothing here was surely written by it."
        " If the brokers are older than 4.0, choose --semantics scala, or their --broker-version."
    )


def _only_java(records: Mapping[tuple[int, int], int]) -> Iterator[tuple[str, int]]:
    """(kind of records, number) for records that only the Java coordinator writes."""
    groups = sum(count for (key_type, _), count in records.items() if key_type in _KEY_TYPES_OF_JAVA)
    if groups:
        yield "records of consumer, share or streams groups", groups
    offsets = records.get((KeyType.OFFSET_COMMIT, _OFFSET_VALUE_OF_4_1), 0)
    if offsets:
        yield f"offsets of value version {_OFFSET_VALUE_OF_4_1}", offsets


def _only_older(semantics: Semantics, records: Mapping[tuple[int, int], int]) -> Iterator[tuple[str, int]]:
    """(kind of records, number) for records that only brokers older than ``semantics`` write."""
    for version in _OFFSET_VALUES_OF_OLD_BROKERS:
        offsets = records.get((KeyType.OFFSET_COMMIT, version), 0)
        if offsets and version < semantics.written_offset_value:
            yield f"offsets of value version {version}", offsets
    if legacy := sum(count for (key_type, _), count in records.items() if key_type == KeyType.LEGACY_OFFSET_COMMIT):
        yield "offsets of key type 0", legacy
    for version in _GROUP_VALUES_OF_OLD_BROKERS:
        if groups := records.get((KeyType.GROUP_METADATA, version), 0):
            yield f"classic groups of value version {version}", groups


def _listed(counts: Mapping[str, int]) -> str:
    """Kinds of records and their numbers, as one text."""
    return ", ".join(f"{records} ({count:,})" for records, count in counts.items())
