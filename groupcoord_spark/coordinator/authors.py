"""Which coordinator wrote the records: their types and versions tell, as every release writes its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from groupcoord_spark.coordinator.semantics import Semantics

LEGACY_OFFSET_KEY, OFFSET_KEY, CLASSIC_GROUP_KEY = 0, 1, 2
_NEW_PROTOCOL_KEYS = frozenset({*range(3, 9), *range(10, 18), *range(19, 24)})
_OFFSET_VALUE_OF_4_1 = 4
# Every release from 0.9 on writes version 1 for commits that ask for an expiry, and from 2.3 on version 3 for classic groups.
_TELLING_OFFSET_VALUES = (2, 3)
_TELLING_GROUP_VALUES = (0, 1, 2)


def other_coordinator(semantics: Semantics, records: Mapping[tuple[int, int], int]) -> str | None:
    """A sentence where the records say that the other coordinator wrote them than the one of ``semantics``; None where they do not.

    records: how many there are of each key type and value version (-1: a tombstone). A topic outlives upgrades, so old records beside
    new ones say nothing against the new broker.
    """
    of_java = dict(_only_java(records))
    if semantics.name == "scala":
        if not of_java:
            return None
        return (
            f"Only Kafka 4.x, or 3.7 to 3.9 with the new coordinator switched on, writes {_told(of_java)}; the rules applied are those of"
            f" {semantics.broker_version}. Choose --semantics java, or the --broker-version of the brokers as they are now."
        )
    of_older = {} if of_java else dict(_only_older(semantics, records))
    if not of_older:
        return None
    return (
        f"Brokers older than the chosen {semantics.broker_version} wrote {_told(of_older)}, and nothing here was surely written by it."
        " If the brokers are older than 4.0, choose --semantics scala, or their --broker-version."
    )


def _only_java(records: Mapping[tuple[int, int], int]) -> Iterator[tuple[str, int]]:
    groups = sum(count for (key_type, _), count in records.items() if key_type in _NEW_PROTOCOL_KEYS)
    if groups:
        yield "records of consumer, share or streams groups", groups
    offsets = records.get((OFFSET_KEY, _OFFSET_VALUE_OF_4_1), 0)
    if offsets:
        yield f"offsets of value version {_OFFSET_VALUE_OF_4_1}", offsets


def _only_older(semantics: Semantics, records: Mapping[tuple[int, int], int]) -> Iterator[tuple[str, int]]:
    for version in _TELLING_OFFSET_VALUES:
        offsets = records.get((OFFSET_KEY, version), 0)
        if offsets and version < semantics.written_offset_value:
            yield f"offsets of value version {version}", offsets
    if legacy := sum(count for (key_type, _), count in records.items() if key_type == LEGACY_OFFSET_KEY):
        yield "offsets of key type 0", legacy
    for version in _TELLING_GROUP_VALUES:
        if groups := records.get((CLASSIC_GROUP_KEY, version), 0):
            yield f"classic groups of value version {version}", groups


def _told(found: Mapping[str, int]) -> str:
    return ", ".join(f"{what} ({count:,})" for what, count in found.items())
