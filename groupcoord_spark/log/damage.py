"""Damage that the reader of a log reports in addition to its records: unused bytes, and doubtful bytes that are used. Codes never
change."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple, Self

from groupcoord_spark.protocol.errors import Doubt
from groupcoord_spark.wording import counted

MAX_RECORD_ROWS = 1000
"""The most rows about single records, for each code in each file; one more row has the count of the rest.

A batch of a few kilobytes can claim millions of records: the report must not grow with them.
"""


class DamageKind(StrEnum):
    """What a code means for the records that it is about."""

    LOST = "lost"
    """The bytes are not used: a row of quarantined_records."""
    WARN = "warn"
    """The records are kept, and somebody should look: a row of warnings."""
    INFO = "info"
    """Nothing is lost and nothing is to be done: a row of warnings too."""


@dataclass(frozen=True, slots=True)
class Code:
    """One code: its stable name, its kind, and a sentence that says when it is reported."""

    name: str
    kind: DamageKind
    sentence: str


CODES: dict[str, Code] = {
    code.name: code
    for code in (
        Code("batch_length_invalid", DamageKind.LOST, "The length of an entry is below the smallest of its format."),
        Code("batch_too_large", DamageKind.LOST, "The length of an entry is above the limit for one batch."),
        Code("unknown_magic", DamageKind.LOST, "The format byte of an entry is not one of 0, 1 and 2."),
        Code("batch_crc_mismatch", DamageKind.LOST, "The checksum of an entry does not fit its bytes."),
        Code("zero_gap", DamageKind.LOST, "Zero bytes lie where an entry should begin, and other bytes or a newer file follow."),
        Code("segment_truncated", DamageKind.LOST, "An entry is cut, in a place where no write can have been in progress."),
        Code("resync_abandoned", DamageKind.LOST, "The search was given up after too many false starts in damaged bytes."),
        Code("tail_truncated", DamageKind.INFO, "The last entry of the newest file is cut: its write was not finished."),
        Code("zero_tail", DamageKind.INFO, "The file ends in zeros: space reserved and not yet written."),
        Code("batch_header_repaired", DamageKind.WARN, "Length or format byte of an entry was wrong; its checksum proves where it ends."),
        Code("batch_duplicate", DamageKind.INFO, "An entry is in the file twice, byte for byte; the second is skipped."),
        Code("base_offset_repaired", DamageKind.WARN, "The base offset of an entry was wrong; it exactly fills the place where it lies."),
        Code("batch_offset_disorder", DamageKind.WARN, "An entry lies out of turn; its records are taken where its offsets say."),
        Code(
            "base_offset_invalid", DamageKind.LOST, "The base offset of an entry contradicts its neighbours, and its true place is unknown."
        ),
        Code("unknown_codec", DamageKind.LOST, "The compression codec of a batch does not exist in its format."),
        Code("decompress_failed", DamageKind.LOST, "The records of a batch cannot be decompressed."),
        Code("decompressed_too_large", DamageKind.LOST, "The records of a batch decompress to more than the limit."),
        Code("record_count_impossible", DamageKind.LOST, "A batch claims more records than its bytes can hold."),
        Code("record_count_invalid", DamageKind.LOST, "A batch claims a negative number of records."),
        Code("record_malformed", DamageKind.LOST, "A record of a batch does not fit its own lengths; Kafka refuses the whole batch."),
        Code("batch_trailing_bytes", DamageKind.LOST, "Bytes are left after the last record of a batch; Kafka refuses the whole batch."),
        Code("record_offset_disorder", DamageKind.WARN, "The offsets in a batch do not rise. Of two records with one the later is kept."),
        Code("record_offset_out_of_batch", DamageKind.WARN, "A record's offset lies outside of the range its batch claims."),
        Code("last_offset_delta_invalid", DamageKind.WARN, "The last offset a batch claims cannot be; it ends at its last record's."),
        Code("wrapper_malformed", DamageKind.LOST, "A compressed message of an old format does not hold what it must."),
        Code("inner_message_truncated", DamageKind.WARN, "The last message inside a compressed message is cut."),
        Code("inner_crc_mismatch", DamageKind.WARN, "The checksum of a message inside a compressed message does not fit."),
        Code("legacy_length_invalid", DamageKind.LOST, "The lengths of key and value do not fill a message of an old format."),
        Code("control_record_malformed", DamageKind.LOST, "The key of a control record is too short or has a negative version."),
        Code("control_type_unknown", DamageKind.INFO, "A control record is neither COMMIT nor ABORT; it has no effect."),
        Code("segment_name_mismatch", DamageKind.WARN, "No entry of the file lies in the range of its name: it was renamed."),
        Code("segment_offset_overflow", DamageKind.WARN, "Entries lie more than 2^31 - 1 above the base of their file (KAFKA-5413)."),
        Code("segment_overlap", DamageKind.INFO, "Records are skipped because a newer file before this one covers their offsets."),
        Code("unknown_file", DamageKind.WARN, "Kafka does not make such a file or directory next to segments; it is not read."),
        Code("beyond_high_watermark", DamageKind.INFO, "Records beyond the high watermark are left out, as the run was asked to."),
        Code(
            "log_directory_file_not_used", DamageKind.WARN, "A damaged or unreadable file next to the offsets topic is not used."
        ),
        Code("log_start_not_used", DamageKind.WARN, "The checkpoint of log start offsets is damaged, or is not of this log and moment."),
        Code("partition_set_aside", DamageKind.WARN, "A partition only has a directory that its broker deletes, fills or does not own."),
        Code("replica_chosen", DamageKind.INFO, "Several replicas of a partition were given; one of them is read."),
    )
}
"""Every code that this room gives, by name."""


class BatchError(ValueError):
    """Raised when the records of a batch cannot be read: the batch is lost. code: a name of CODES; detail: a clause without a full stop."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(detail)
        self.code = code
        self.detail = detail

    def without_frames(self) -> Self:
        """Return the error for a list of errors. Its traceback would keep every caller's buffers, up to 256 MiB for a decompression
        bomb."""
        self.__cause__ = self.__context__ = None
        return self.with_traceback(None)


@dataclass(frozen=True, slots=True)
class Lost:
    """Bytes that are not used: a damaged range, a batch or a record.

    Attributes:
        code: a name of CODES, of kind LOST.
        source: path or URI of the file.
        position, size: place of the bytes in the file; for a record, the place of its batch.
        record_offset: the offset of a record, the base offset of a batch; None where it is not known.
        detail: a sentence for people.
        records: how many records are lost; None where that is not known.
        key, value: of a single record whose bytes can be read.
    """

    code: str
    source: str
    offsets_partition: int
    position: int
    size: int
    record_offset: int | None
    detail: str
    records: int | None = None
    key: bytes | None = None
    value: bytes | None = None


@dataclass(frozen=True, slots=True)
class PlacedDoubt(Doubt):
    """A doubt about bytes of a file that are used all the same, or that are skipped for a good reason.

    Attributes:
        code: a name of CODES, of kind WARN or INFO.
        source: path or URI of the file or directory.
        offsets_partition: None where the doubt is about no partition.
        position, size: where the bytes lie in the file; 0 where the doubt is about a whole file or directory.
        record_offset: as in Lost.
        records: how many records the doubt is about; None where they are not counted.
    """

    source: str
    offsets_partition: int | None
    position: int
    size: int
    record_offset: int | None
    records: int | None = None


class Damage(NamedTuple):
    """Damage that one step of the reader reports: a Lost or a PlacedDoubt of the file, by the kind of the code.

    ``of_record``: the damage affects a single record; after MAX_RECORD_ROWS of a code such damage is only counted. See Lost and PlacedDoubt
    for the other fields.
    """

    code: str
    position: int
    size: int
    record_offset: int | None
    detail: str
    records: int | None = None
    key: bytes | None = None
    value: bytes | None = None
    of_record: bool = False


@dataclass(slots=True)
class DamageReport:
    """Lost and doubtful places of one file; ``take`` returns them chunk by chunk."""

    source: str
    offsets_partition: int
    lost: list[Lost] = field(default_factory=list)
    doubts: list[PlacedDoubt] = field(default_factory=list)
    _records: Counter[str] = field(default_factory=Counter)

    def add(self, damages: Iterable[Damage]) -> None:
        """Adds the damage that a step reports."""
        for code, position, size, record_offset, detail, records, key, value, of_record in damages:
            if of_record:
                self._records[code] += 1
                if self._records[code] > MAX_RECORD_ROWS:
                    continue
            place = self.source, self.offsets_partition, position, size, record_offset
            if CODES[code].kind is DamageKind.LOST:
                self.lost.append(Lost(code, *place, detail, records, key, value))
            else:
                self.doubts.append(PlacedDoubt(code, detail, *place, records))

    def take(self) -> tuple[list[Lost], list[PlacedDoubt]]:
        """Return everything that was added since the last call."""
        lost, doubts = self.lost, self.doubts
        self.lost, self.doubts = [], []
        return lost, doubts

    def close(self) -> None:
        """Adds, for each code with more records than rows, how many records have no row."""
        for code, records in self._records.items():
            if (rest := records - MAX_RECORD_ROWS) > 0:
                detail = f"This file has {counted(rest, 'more record')} with this code; only the first {MAX_RECORD_ROWS} records have rows."
                self.add([Damage(code, 0, 0, None, detail, rest)])
