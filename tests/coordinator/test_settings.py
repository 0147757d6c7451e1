"""Which broker is meant, and how long it keeps offsets."""

import pytest

from groupcoord_spark.coordinator import JAVA, SCALA, RetentionSettings, read_duration, read_settings, semantics_for
from groupcoord_spark.errors import UsageError

DAY_MS = 86_400_000


def test_java_is_the_default_and_a_name_alone_means_its_last_release() -> None:
    assert semantics_for() == JAVA == semantics_for("java") == semantics_for(broker_version="4.3")
    assert semantics_for("scala") == SCALA == semantics_for("scala", "3.9")


@pytest.mark.parametrize(
    ("release", "name", "offset_rules", "group_rule", "newest_offset", "newest_group", "retention_days"),
    [
        ("0.8.2.2", "scala", "X-A0", None, (0, -1), 0, 1),
        ("0.9.0.1", "scala", "X-A1", "X-G0", (1, 1), 0, 1),
        ("0.10.0", "scala", "X-A1", "X-G1", (1, 1), 0, 1),
        ("0.10.2.2", "scala", "X-A1", "X-G1", (1, 1), 1, 1),
        ("1.1.1", "scala", "X-A1", "X-G1", (1, 1), 1, 1),
        ("2.0.1", "scala", "X-A1", "X-G1", (1, 1), 1, 7),
        ("2.1.0", "scala", "X-B", "X-G1", (3, 3), 2, 7),
        ("2.8.2", "scala", "X-B", "X-G1", (3, 3), 3, 7),
        ("3.4.1", "scala", "X-B", "X-G1", (4, 4), 4, 7),
        ("3.9.1", "scala", "X-B", "X-G1", (4, 4), 4, 7),
        ("4.0.1", "java", "X-B", "X-G2", (4, 4), 4, 7),
        ("4.3.1", "java", "X-B", "X-G2", (0, 4), 4, 7),
    ],
)
def test_rules_of_a_release(
    release: str,
    name: str,
    offset_rules: str,
    group_rule: str | None,
    newest_offset: tuple[int, int],
    newest_group: int,
    retention_days: int,
) -> None:
    semantics = semantics_for(broker_version=release)
    assert (semantics.name, semantics.broker_version) == (name, release)
    assert (semantics.offset_rules, semantics.group_rule) == (offset_rules, group_rule)
    assert (semantics.newest_offset_value, semantics.newest_group_value) == (newest_offset, newest_group)
    assert semantics.default_retention_ms == retention_days * DAY_MS


def test_value_versions_that_a_broker_loads() -> None:
    assert [JAVA.accepts_value(0, version) for version in (-1, 0, 1)] == [False, True, False]
    assert [JAVA.accepts_value(1, version) for version in (4, 5)] == [True, False]
    assert SCALA.accepts_value(0, 4)


@pytest.mark.parametrize(
    ("name", "release"), [("kotlin", None), (None, "four"), (None, "4"), (None, "0.8.1"), ("java", "3.9"), ("scala", "4.0.1"), (None, "")]
)
def test_what_is_no_broker_is_refused_in_a_sentence(name: str | None, release: str | None) -> None:
    with pytest.raises(UsageError, match=r"\.$"):
        semantics_for(name, release)


@pytest.mark.parametrize(
    ("text", "milliseconds"), [("7d", 7 * DAY_MS), ("36h", 129_600_000), ("90m", 5_400_000), ("30s", 30_000), (" 60000 ms ", 60_000)]
)
def test_durations(text: str, milliseconds: int) -> None:
    assert read_duration(text) == milliseconds


@pytest.mark.parametrize("text", ["", "7", "ten days", "1.5d", "-1d", "7 days"])
def test_what_is_no_duration_is_refused_in_a_sentence(text: str) -> None:
    with pytest.raises(UsageError, match="Write for example 10d, 240h or 14400m"):
        read_duration(text)


def test_settings_of_a_broker() -> None:
    properties = {
        "offsets.retention.minutes": "1440",
        "offsets.retention.check.interval.ms": "5000",
        "group.consumer.assignors": "org.apache.kafka.coordinator.group.assignor.RangeAssignor, uniform",
        "broker.id": "1",
    }
    assert read_settings(properties, JAVA) == RetentionSettings(DAY_MS, 5_000, "range")


def test_settings_not_given_are_those_of_the_release() -> None:
    assert read_settings({}, JAVA) == RetentionSettings(7 * DAY_MS, 600_000, "uniform")
    assert read_settings({}, semantics_for(broker_version="1.1.1")).retention_ms == DAY_MS
    assert read_settings({"group.consumer.assignors": "com.example.Mine"}, JAVA).default_assignor == "com.example.Mine"


@pytest.mark.parametrize("text", ["0", "-1", "week", "2147483648"])
def test_setting_that_is_no_number_is_refused_in_a_sentence(text: str) -> None:
    with pytest.raises(UsageError, match=r"offsets\.retention\.minutes"):
        read_settings({"offsets.retention.minutes": text}, JAVA)
