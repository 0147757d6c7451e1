"""The broker and topic settings on which the findings depend."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from groupcoord_spark.errors import UsageError


@dataclass(frozen=True, slots=True)
class HealthSettings:
    """Settings with Kafka's defaults.

    Attributes:
        min_cleanable_ratio: the dirty share of bytes that makes the cleaner take a partition.
        min_compaction_lag_ms: segments with a record younger than this are not cleaned.
        transaction_max_timeout_ms: the longest timeout that a client may ask for.
        dedupe_buffer_bytes, dedupe_load_factor, cleaner_threads: how many keys one cleaning pass can hold.
        max_message_bytes: the largest batch that the topic takes.
        load_buffer_bytes: the largest batch that the loaders of old releases take (offsets.load.buffer.size).
    """

    min_cleanable_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    transaction_max_timeout_ms: int = 900_000
    dedupe_buffer_bytes: int = 128 << 20
    dedupe_load_factor: float = 0.9
    cleaner_threads: int = 1
    max_message_bytes: int = 1_048_588
    load_buffer_bytes: int = 5 << 20

    @property
    def keys_in_one_pass(self) -> int:
        """How many distinct keys one cleaning pass can hold: 24 bytes each in the thread's share of the buffer."""
        return int(self.dedupe_buffer_bytes // self.cleaner_threads * self.dedupe_load_factor // 24)


_NAMES: Mapping[str, tuple[str, ...]] = {
    "min_cleanable_ratio": ("min.cleanable.dirty.ratio", "log.cleaner.min.cleanable.ratio"),
    "min_compaction_lag_ms": ("min.compaction.lag.ms", "log.cleaner.min.compaction.lag.ms"),
    "transaction_max_timeout_ms": ("transaction.max.timeout.ms",),
    "dedupe_buffer_bytes": ("log.cleaner.dedupe.buffer.size",),
    "dedupe_load_factor": ("log.cleaner.io.buffer.load.factor",),
    "cleaner_threads": ("log.cleaner.threads",),
    "max_message_bytes": ("max.message.bytes", "message.max.bytes"),
    "load_buffer_bytes": ("offsets.load.buffer.size",),
}
"""Field -> Kafka's names of it, the topic's before the broker's."""

SETTING_NAMES: Final = frozenset(name for names in _NAMES.values() for name in names)
"""All settings on which findings depend."""


def read_health_settings(properties: Mapping[str, str]) -> HealthSettings:
    """Read the settings from the properties of a broker or of the topic. A missing setting gets Kafka's default.

    Raises UsageError where Kafka would not accept a value.
    """
    values: dict[str, int | float] = {}
    for field, names in _NAMES.items():
        name = next((name for name in names if name in properties), None)
        if name is None:
            continue
        text, is_share = properties[name].strip(), field in ("min_cleanable_ratio", "dedupe_load_factor")
        if is_share:
            if not re.fullmatch(r"[0-9]*\.?[0-9]+", text) or not 0 <= float(text) <= 1:
                raise UsageError(f"{name} {text!r} is not a number from 0 to 1.")
            values[field] = float(text)
        else:
            if not re.fullmatch(r"[0-9]{1,18}", text) or (field == "cleaner_threads" and int(text) == 0):
                raise UsageError(f"{name} {text!r} is not a whole number{' from 1 on' if field == 'cleaner_threads' else ''}.")
            values[field] = int(text)
    return HealthSettings(**values)  # type: ignore[arg-type]
