"""Whether the coordinator of a release would load a log: one replay of each offsets partition for each set of loading rules.

A record that the loader refuses makes the load of its whole offsets partition fail. A skipped record is left out, and the load goes on.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa

from groupcoord_spark.coordinator.releases import LAST_PATCHES, Release, version_text
from groupcoord_spark.coordinator.semantics import Semantics, semantics_for
from groupcoord_spark.coordinator.state import LoadWarning
from groupcoord_spark.log import PartitionLog, Records, read_segment
from groupcoord_spark.pipeline.read.decode import decode_chunk
from groupcoord_spark.pipeline.read.superseded import SupersedeBuffer
from groupcoord_spark.pipeline.replay.kept_records_replay import KeptRecordsReplay

_UNKNOWN_TYPE: Final = "R-1.6"
_ENDS_WITH_AN_ERROR: Final = "R-1.28"


@dataclass(slots=True)
class LoadOutcome:
    """What the coordinator of one release makes of one offsets partition.

    Attributes:
        release: as ``Semantics.broker_version``.
        refusal: the first refused record; None: the partition loads.
        refused: how many records the loader would refuse, one after another; with records that a later one supersedes left out.
        skipped: skipped records by rule.
        groups: group id -> (type, state, members). offsets: (group id, topic, partition) -> committed offset. The state as if the refused
            records were not there.
        groups_of_orphans: groups that are deleted and have offsets.
    """

    offsets_partition: int
    release: str
    refusal: LoadWarning | None = None
    refused: int = 0
    skipped: Counter[str] = field(default_factory=Counter)
    groups: dict[str, tuple[str, str, int]] = field(default_factory=dict)
    offsets: dict[tuple[str, str, int], int] = field(default_factory=dict)
    groups_of_orphans: set[str] = field(default_factory=set)

    @property
    def loads(self) -> bool:
        """True where the coordinator loads the partition."""
        return self.refusal is None


@dataclass(frozen=True, slots=True)
class ReleaseRange:
    """Consecutive releases that load every log the same way. ``semantics`` is the last release's."""

    first: str
    last: str
    semantics: Semantics

    @property
    def name(self) -> str:
        """``2.1.0 to 2.2.2``, or a single release."""
        return self.first if self.first == self.last else f"{self.first} to {self.last}"


def release_ranges() -> list[ReleaseRange]:
    """Return all releases in order, as ranges of consecutive releases that load every log the same way."""
    releases: list[Release] = [(*line, patch) for line, last in LAST_PATCHES.items() for patch in range(last + 1)]
    ranges: list[ReleaseRange] = []
    for release in sorted(releases):
        text = version_text(release)
        semantics = semantics_for(broker_version=text)
        if ranges and ranges[-1].semantics.loading_rules() == semantics.loading_rules():
            ranges[-1] = ReleaseRange(ranges[-1].first, text, semantics)
        else:
            ranges.append(ReleaseRange(text, text, semantics))
    return ranges


def check_load(log: PartitionLog, releases: Sequence[Semantics]) -> list[LoadOutcome]:
    """Return how the coordinator of each release loads the log of one offsets partition; the log is read once."""
    return [outcome for outcome, _ in check_load_and_keep(log, releases, keep=False)]


def check_load_and_keep(
    log: PartitionLog, releases: Sequence[Semantics], *, keep: bool = True
) -> list[tuple[LoadOutcome, list[pa.RecordBatch]]]:
    """As ``check_load``, with the batches of KEPT that each load needed, in the order of the log."""
    loads = [_Load(log.offsets_partition, semantics, keep) for semantics in releases]
    for segment in log.segments:
        for chunk in read_segment(segment):
            if len(chunk.records):
                for load in loads:
                    load.add(chunk.records)
    return [(load.finish(), load.kept) for load in loads]


class _Load:
    """The load of one offsets partition by the coordinator of one release."""

    def __init__(self, offsets_partition: int, semantics: Semantics, keep: bool) -> None:
        self._keep = keep
        self.kept: list[pa.RecordBatch] = []
        self._semantics = semantics
        self._outcome = LoadOutcome(offsets_partition, semantics.broker_version)
        self._buffer = SupersedeBuffer()
        self._replay = KeptRecordsReplay(semantics)

    def add(self, records: Records) -> None:
        """Load more records."""
        decoded = decode_chunk(records, self._semantics)
        notes = decoded.refusals
        offsets = records.record_offset[notes.row].tolist()
        self._count(
            LoadWarning(offset, None, notes.codes[note], notes.details[note])
            for offset, note in zip(offsets, notes.note.tolist(), strict=True)
        )
        self._apply(self._buffer.add(decoded))

    def _apply(self, batches: Iterable[pa.RecordBatch]) -> None:
        for batch in batches:
            self._replay.apply(batch)
            if self._keep:
                self.kept.append(batch)

    def finish(self) -> LoadOutcome:
        """Return the outcome after the last record."""
        self._apply(self._buffer.flush())
        state, outcome = self._replay.coordinator.finish(), self._outcome
        self._count(state.warnings())
        outcome.groups = {group.group_id: (group.group_type, group.state, group.member_count) for group in state.groups()}
        orphans = state.orphan_offsets()
        outcome.offsets = {
            (row.group_id, row.topic, row.partition): row.commit.committed_offset for row in (*state.committed_offsets(), *orphans)
        }
        outcome.groups_of_orphans = {row.group_id for row in orphans}
        return outcome

    def _count(self, warnings: Iterable[LoadWarning]) -> None:
        outcome = self._outcome
        for warning in warnings:
            if warning.code == _UNKNOWN_TYPE and not self._semantics.unknown_key_type_fails_load:
                outcome.skipped[warning.code] += 1
            # the Scala loader raises an error after the last record.
            elif warning.is_refusal or warning.code == _ENDS_WITH_AN_ERROR:
                outcome.refused += 1
                if outcome.refusal is None or _place(warning) < _place(outcome.refusal):
                    outcome.refusal = warning


def _place(refusal: LoadWarning) -> float:
    """Sort key: the record offset; the end of the log is after all of them."""
    return float("inf") if refusal.record_offset is None or refusal.code == _ENDS_WITH_AN_ERROR else refusal.record_offset


@dataclass(frozen=True, slots=True)
class Differences:
    """Differences between the state after a load and the state of the release in use: group ids, and (group id, topic, partition) of
    offsets."""

    groups: tuple[str, ...]
    offsets: tuple[tuple[str, str, int], ...]


def differences(outcome: LoadOutcome, in_use: LoadOutcome) -> Differences:
    """Return what this release reads differently from the release in use, in one offsets partition."""
    groups = sorted(name for name in outcome.groups.keys() | in_use.groups.keys() if outcome.groups.get(name) != in_use.groups.get(name))
    offsets = sorted(key for key in outcome.offsets.keys() | in_use.offsets.keys() if outcome.offsets.get(key) != in_use.offsets.get(key))
    return Differences(tuple(groups), tuple(offsets))
