"""The settings of a simulated consumer, with the defaults of its release.

Source of the defaults: ``ConsumerConfig`` of kafka-clients 1.1 to 4.3 on Maven Central.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from groupcoord_spark.coordinator.releases import Release, release_named

COOPERATIVE: Final = "cooperative-sticky"
NEWEST_CLIENT: Final = "4.3"

CLASSIC_PROTOCOL: Final = "classic"
CONSUMER_PROTOCOL: Final = "consumer"

_FIRST_NEW_PROTOCOL: Final = (4, 0)  # KIP-848
_FIRST_STATIC: Final = (2, 3)  # KIP-345
_FIRST_COOPERATIVE: Final = (2, 4)  # KIP-429


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """Consumer settings under Kafka's names, with the newest client's defaults; ``defaults_of`` returns the defaults of older releases.

    client_version: the release of the client library.
    topics_pattern: a regular expression; the consumer subscribes to every topic whose whole name it matches.
    """

    client_version: str = NEWEST_CLIENT
    topics: tuple[str, ...] = ()
    topics_pattern: str | None = None
    client_id: str = ""
    group_instance_id: str | None = None
    client_rack: str | None = None
    group_protocol: str = "classic"
    group_remote_assignor: str | None = None
    partition_assignment_strategy: tuple[str, ...] = ("range", COOPERATIVE)
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 3_000
    max_poll_interval_ms: int = 300_000
    retry_backoff_ms: int = 100
    default_api_timeout_ms: int = 60_000
    metadata_max_age_ms: int = 300_000
    connections_max_idle_ms: int = 540_000
    enable_auto_commit: bool = False
    auto_commit_interval_ms: int = 5_000
    internal_leave_group_on_close: bool = True
    interceptor_classes: tuple[str, ...] = ()

    @property
    def is_cooperative(self) -> bool:
        """Whether the consumer keeps its partitions during a rebalance: if all its assignors are cooperative (KIP-429)."""
        return set(self.partition_assignment_strategy) == {COOPERATIVE}

    @property
    def release(self) -> Release:
        """The release of the client library."""
        return release_named(self.client_version)

    @property
    def subscription_version(self) -> int:
        """The version of the subscription that the client puts into JoinGroup: with owned partitions since 2.4, with a rack since 3.4."""
        return 3 if self.release >= (3, 4) else 1 if self.release >= _FIRST_COOPERATIVE else 0

    def unknown_to_client(self) -> str | None:
        """Return a sentence about a setting that the client release does not have, or None."""
        if self.group_instance_id is not None and self.release < _FIRST_STATIC:
            return f"client {self.client_version} does not know group.instance.id: static members came with 2.3."
        if self.group_protocol == CONSUMER_PROTOCOL and self.release < _FIRST_NEW_PROTOCOL:
            return f"client {self.client_version} does not know group.protocol={CONSUMER_PROTOCOL}: it is there since 4.0."
        if COOPERATIVE in self.partition_assignment_strategy and self.release < _FIRST_COOPERATIVE:
            return f"client {self.client_version} does not know the assignor {COOPERATIVE}: it came with 2.4."
        return None


def defaults_of(client_version: str) -> Mapping[str, Any]:
    """Return the defaults of a client release that differ from the newest client's, by field of ClientSettings.

    Raises UsageError: the version is not a release.
    """
    if release_named(client_version) >= (3, 0):
        return {}
    return {"session_timeout_ms": 10_000, "partition_assignment_strategy": ("range",)}
