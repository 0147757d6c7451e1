"""The versions of requests that each release of Kafka knows, as a broker and as a client.

Source: ``ApiKeys`` of kafka-clients 0.10.1 to 4.4 on Maven Central, without versions that are marked unstable. Brokers 3.7
to 3.9 know ConsumerGroupHeartbeat version 0, but refuse it by default (``group.coordinator.rebalance.protocols``): here it comes with 4.0.
Requests of share groups come with 4.2: before, share groups were a preview, off by default and with other rules.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from groupcoord_spark.coordinator.releases import Release
from groupcoord_spark.simulator.messages import requests


class Versions(NamedTuple):
    """The oldest and the newest version of a request that a release knows."""

    oldest: int
    newest: int

    def __contains__(self, version: object) -> bool:
        return isinstance(version, int) and self.oldest <= version <= self.newest


_NEWEST: Final[Mapping[type, tuple[tuple[Release, int], ...]]] = {
    requests.JoinGroup: (((0, 10), 1), ((0, 11), 2), ((2, 0), 3), ((2, 2), 4), ((2, 3), 5), ((2, 4), 6), ((2, 5), 7), ((3, 2), 9)),
    requests.SyncGroup: (((0, 10), 0), ((0, 11), 1), ((2, 0), 2), ((2, 3), 3), ((2, 4), 4), ((2, 5), 5)),
    requests.Heartbeat: (((0, 10), 0), ((0, 11), 1), ((2, 0), 2), ((2, 3), 3), ((2, 4), 4)),
    requests.LeaveGroup: (((0, 10), 0), ((0, 11), 1), ((2, 0), 2), ((2, 4), 4), ((3, 2), 5)),
    requests.ConsumerGroupHeartbeat: (((4, 0), 1),),
    requests.ConsumerGroupDescribe: (((4, 0), 1),),
    requests.ShareGroupHeartbeat: (((4, 2), 1),),
    requests.ShareGroupDescribe: (((4, 2), 1),),
    requests.StreamsGroupHeartbeat: (((4, 2), 0), ((4, 4), 1)),
    requests.StreamsGroupDescribe: (((4, 2), 0), ((4, 4), 1)),
    requests.OffsetCommit: (((0, 10), 2), ((0, 11), 3), ((2, 0), 4), ((2, 1), 6), ((2, 3), 7), ((2, 4), 8), ((3, 7), 9), ((4, 2), 10)),
    requests.OffsetFetch: (
        *(((0, 10), 1), ((0, 10, 2), 2), ((0, 11), 3), ((2, 0), 4), ((2, 1), 5), ((2, 4), 6), ((2, 5), 7), ((3, 0), 8), ((3, 7), 9)),
        ((4, 2), 10),
    ),
    requests.FindCoordinator: (((0, 10), 0), ((0, 11), 1), ((2, 0), 2), ((2, 4), 3), ((3, 0), 4), ((3, 8), 5), ((3, 9), 6)),
    requests.DescribeGroups: (((0, 10), 0), ((0, 11), 1), ((2, 0), 2), ((2, 3), 3), ((2, 4), 5), ((4, 0), 6)),
    requests.ListGroups: (((0, 10), 0), ((0, 11), 1), ((2, 0), 2), ((2, 4), 3), ((2, 6), 4), ((3, 8), 5)),
    requests.DeleteGroups: (((1, 1), 0), ((2, 0), 1), ((2, 4), 2), ((4, 4), 3)),
    requests.OffsetDelete: (((2, 4), 0),),
    requests.AddOffsetsToTxn: (((0, 11), 0), ((2, 0), 1), ((2, 7), 2), ((2, 8), 3), ((3, 8), 4)),
    requests.TxnOffsetCommit: (((0, 11), 0), ((2, 0), 1), ((2, 1), 2), ((2, 5), 3), ((3, 8), 4), ((4, 0), 5), ((4, 4), 6)),
    requests.WriteTxnMarkers: (((0, 11), 0), ((2, 8), 1), ((4, 2), 2)),
    requests.EndTxn: (((0, 11), 0), ((2, 0), 1), ((2, 7), 2), ((2, 8), 3), ((3, 8), 4), ((4, 0), 5)),
}
"""Request -> (first release, newest version since that release). A release before the first one does not know the request."""

_OLDEST: Final[Mapping[type, tuple[tuple[Release, int], ...]]] = {
    requests.JoinGroup: (((4, 0), 2), ((4, 1), 0)),
    requests.OffsetCommit: (((4, 0), 2),),
    requests.OffsetFetch: (((4, 0), 1),),
    requests.ShareGroupHeartbeat: (((4, 2), 1),),
    requests.ShareGroupDescribe: (((4, 2), 1),),
    requests.WriteTxnMarkers: (((4, 0), 1),),
}
"""Request -> (first release, oldest version since that release), for requests whose oldest version was once not 0 (KIP-896)."""


def first_release_of(request: type) -> Release:
    """Return the first release that supports the request."""
    return _NEWEST[request][0][0]


def newest_version(request: type) -> int:
    """Return the newest version of the request in any release."""
    return _NEWEST[request][-1][1]


def known_versions(release: Release) -> dict[type, Versions]:
    """Request -> its versions, for the requests that the release knows."""
    versions = {}
    for request, steps in _NEWEST.items():
        if release >= steps[0][0]:
            versions[request] = Versions(_at(release, _OLDEST.get(request, ()), 0), _at(release, steps, 0))
    return versions


def _at(release: Release, steps: tuple[tuple[Release, int], ...], otherwise: int) -> int:
    """Return the version of the last step that the release has reached, or ``otherwise`` before the first step."""
    return next((version for since, version in reversed(steps) if release >= since), otherwise)
