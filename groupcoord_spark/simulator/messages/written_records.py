"""Records of ``__consumer_offsets``, decoded. ``protocol`` turns them into bytes."""

from typing import Any

from msgspec import Struct

from groupcoord_spark.protocol import encode_key, encode_value
from groupcoord_spark.protocol.record_types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID


class RecordToWrite(Struct, frozen=True):
    """A decoded key and a decoded value. Without a value the record is a tombstone."""

    key_type: int
    key: dict[str, Any]
    value_version: int | None = None
    value: dict[str, Any] | None = None


class WrittenRecord(Struct, frozen=True):
    """A record in the log.

    batch: the same number for all records of one append.
    control: COMMIT or ABORT for a transaction marker, which has no key and no value here; None for other records.
    """

    offsets_partition: int
    record_offset: int
    batch: int
    timestamp_ms: int
    key_type: int | None = None
    key: dict[str, Any] | None = None
    value_version: int | None = None
    value: dict[str, Any] | None = None
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH
    is_transactional: bool = False
    control: str | None = None

    @property
    def key_bytes(self) -> bytes | None:
        """The bytes of the key; None for a marker."""
        return None if self.key_type is None or self.key is None else encode_key(self.key_type, self.key)

    @property
    def value_bytes(self) -> bytes | None:
        """The bytes of the value; None for a tombstone and for a marker."""
        if self.key_type is None or self.value_version is None or self.value is None:
            return None
        return encode_value(self.key_type, self.value_version, self.value)
