"""The releases of Kafka that have a ``__consumer_offsets`` topic, and the release that a version text means."""

import re
from collections.abc import Mapping

from groupcoord_spark.errors import UsageError

Release = tuple[int, ...]
"""The numbers of a whole version: (4, 2, 1), or four numbers up to 0.11: (0, 10, 2, 2)."""

LAST_PATCHES: Mapping[Release, int] = {
    (0, 8, 2): 2, (0, 9, 0): 1, (0, 10, 0): 1, (0, 10, 1): 1, (0, 10, 2): 2, (0, 11, 0): 3,
    (1, 0): 2, (1, 1): 1,
    (2, 0): 1, (2, 1): 1, (2, 2): 2, (2, 3): 1, (2, 4): 1, (2, 5): 1, (2, 6): 3, (2, 7): 2, (2, 8): 2,
    (3, 0): 2, (3, 1): 2, (3, 2): 3, (3, 3): 2, (3, 4): 1, (3, 5): 2, (3, 6): 2, (3, 7): 2, (3, 8): 1, (3, 9): 2,
    (4, 0): 2, (4, 1): 2, (4, 2): 2, (4, 3): 1, (4, 4): 0,
}  # fmt: skip
"""Line of releases -> number of its newest patch release. Each line has all patch releases from 0 to that number.

Source: Maven Central (org.apache.kafka:kafka-clients, November 2026)."""

_FIRST = (0, 8, 2)


def release_named(text: str) -> Release:
    """Return the release of a version such as ``4.2.1``, or the newest release that starts with a shorter text (``4.2``, ``0.10``).

    Raises:
        UsageError: There is no such release. The sentence names the releases that exist.
    """
    text = text.strip()
    if not re.fullmatch(r"\d+(\.\d+){1,3}", text):
        raise UsageError(f"broker version {text!r} is not a release of Kafka. Write for example 4.3.1, 3.9 or 0.10.2.")
    asked = tuple(map(int, text.split(".")))
    releases = [(*line, last) for line, last in LAST_PATCHES.items() if asked[: len(line)] == line[: len(asked)]]
    if not releases:
        if asked < _FIRST:
            raise UsageError(f"broker version {text!r} has no __consumer_offsets topic: the topic came with 0.8.2.")
        lines = ", ".join(map(version_text, LAST_PATCHES))
        raise UsageError(f"broker version {text!r} is not a release of Kafka. These are known, with their patch releases: {lines}.")
    newest = max(releases)
    line = newest[:-1]
    if len(asked) <= len(line):
        return newest
    if len(asked) > len(newest) or asked > newest:
        patches = ", ".join(version_text((*line, patch)) for patch in range(newest[-1] + 1))
        raise UsageError(f"broker version {text!r} is not a release of Kafka. Of {version_text(line)} there are: {patches}.")
    return asked


def version_text(release: Release) -> str:
    """Return the release as text: ``4.2.1``."""
    return ".".join(map(str, release))
