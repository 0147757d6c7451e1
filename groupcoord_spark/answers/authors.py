"""A sentence for the user where the key types and value versions show that another coordinator wrote the records."""

from collections.abc import Iterable, Mapping, Set
from typing import Final, NamedTuple

from groupcoord_spark.coordinator.semantics import Semantics
from groupcoord_spark.protocol.record_types import MODERN_KEY_TYPES, KeyType


class _Kind(NamedTuple):
    """Records of some key types. value_version: None: records of every version, and tombstones."""

    name: str
    key_types: Set[int]
    value_version: int | None = None


_OFFSETS: Final = frozenset({KeyType.OFFSET_COMMIT})
_ONLY_JAVA: Final = (
    # A key type that no supported release loads says nothing about the writer.
    _Kind("records of consumer, share or streams groups", MODERN_KEY_TYPES - {KeyType.SHARE_GROUP_PARTITION_METADATA}),
    _Kind("offsets of value version 4", _OFFSETS, 4),
)
_ONLY_OLDER: Final = (
    # Version 1 does not indicate an old broker: every release since 0.9 writes it for commits with an explicit expiry.
    *(_Kind(f"offsets of value version {version}", _OFFSETS, version) for version in (2, 3)),
    _Kind("offsets of key type 0", frozenset({KeyType.LEGACY_OFFSET_COMMIT})),
    # Version 3 does not indicate an old broker: every release since 2.3 writes it.
    *(_Kind(f"classic groups of value version {version}", frozenset({KeyType.GROUP_METADATA}), version) for version in (0, 1, 2)),
)


def other_coordinator(semantics: Semantics, records: Mapping[tuple[int, int], int]) -> str | None:
    """Return a sentence about why another coordinator probably wrote the records, or None if nothing contradicts ``semantics``.

    Old records next to new ones do not contradict a new broker, because the topic survives upgrades.
    records: (key type, value version) -> number of records; value version -1: tombstones.
    """
    java_counts = _counts(_ONLY_JAVA, records)
    if semantics.name == "scala":
        if not java_counts:
            return None
        return (
            f"Only Kafka 4.x, or 3.7 to 3.9 with the new coordinator switched on, writes {_listed(java_counts)};"
            f" the rules applied are those of {semantics.broker_version}."
            " Choose --semantics java, or the --broker-version of the brokers as they are now."
        )
    older = [kind for kind in _ONLY_OLDER if kind.key_types != _OFFSETS or (kind.value_version or 0) < semantics.written_offset_value]
    old_counts = {} if java_counts else _counts(older, records)
    if not old_counts:
        return None
    return (
        f"Brokers older than the chosen {semantics.broker_version} wrote {_listed(old_counts)}, and nothing here was surely written by it."
        " If the brokers are older than 4.0, choose --semantics scala, or their --broker-version."
    )


def _counts(kinds: Iterable[_Kind], records: Mapping[tuple[int, int], int]) -> dict[str, int]:
    """Return the number of records by name, for the kinds that have any."""
    counts = {
        name: sum(records[key_type, version] for key_type, version in records if key_type in key_types and wanted in (None, version))
        for name, key_types, wanted in kinds
    }
    return {name: count for name, count in counts.items() if count}


def _listed(counts: Mapping[str, int]) -> str:
    """Kinds of records and their numbers, as one text."""
    return ", ".join(f"{records} ({count:,})" for records, count in counts.items())
