"""Which broker is meant, and how long it keeps offsets."""

import re
from pathlib import Path

import pytest

from groupcoord_spark.coordinator import JAVA, SCALA, BrokerSettings, DefaultAssignors, read_broker_settings, read_duration, semantics_for
from groupcoord_spark.coordinator.broker_settings import SETTINGS_OF_RUNS, kafka_setting_names, refuse_misspelled_names
from groupcoord_spark.errors import UsageError
from groupcoord_spark.properties import read_properties

DAY_MS = 86_400_000


def test_java_is_the_default_and_a_name_alone_means_its_last_release() -> None:
    assert semantics_for() == JAVA == semantics_for("java") == semantics_for(broker_version="4.3")
    assert semantics_for("scala") == SCALA == semantics_for("scala", "3.9")


@pytest.mark.parametrize(
    ("release", "name", "offset_rules", "group_rule", "newest_offset", "newest_group", "retention_days"),
    [
        ("0.8.2.2", "scala", "X-A0", None, (0, -1), 0, 1),
        ("0.9.0.1", "scala", "X-A1", "X-G0", (1, 1), 0, 1),
        ("0.10.0", "scala", "X-A1", "X-G0", (1, 1), 0, 1),
        ("0.10.1.0", "scala", "X-A1", "X-G1", (1, 1), 1, 1),
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
    ("name", "release"),
    [("kotlin", None), (None, "four"), (None, "4"), (None, "0.8.1"), ("java", "3.6"), ("scala", "4.0.1"), (None, ""), (None, "9.9")],
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
        "offsets.topic.num.partitions": " 5 ",
        "group.consumer.assignors": "org.apache.kafka.coordinator.group.assignor.RangeAssignor, uniform",
        "group.share.assignors": "simple",
        "broker.id": "1",
    }
    assert read_broker_settings(properties, JAVA) == BrokerSettings(DAY_MS, DefaultAssignors("range", "simple"), 5)


def test_settings_not_given_are_those_of_the_release() -> None:
    assert read_broker_settings({}, JAVA) == BrokerSettings(7 * DAY_MS, DefaultAssignors("uniform", "simple"), None)
    assert read_broker_settings({}, semantics_for(broker_version="1.1.1")).retention_ms == DAY_MS


@pytest.mark.parametrize(
    ("listed", "default"),
    [
        ("range", "range"),
        ("uniform,range", "uniform"),
        ("org.apache.kafka.coordinator.group.assignor.UniformAssignor", "uniform"),
        ("com.example.Mine,range", "com.example.Mine"),
        ("", "uniform"),
    ],
)
def test_the_first_assignor_of_the_list_is_the_default(listed: str, default: str) -> None:
    assert read_broker_settings({"group.consumer.assignors": listed}, JAVA).default_assignors.consumer == default


def test_an_assignor_that_no_broker_has_is_refused() -> None:
    with pytest.raises(UsageError, match=r"begins with 'rnage', which is neither one of uniform, range nor the name of a class\."):
        read_broker_settings({"group.consumer.assignors": "rnage"}, JAVA)


@pytest.mark.parametrize("name", ["offsets.retention.minutes", "offsets.topic.num.partitions"])
@pytest.mark.parametrize("text", ["0", "-1", "week", "2147483648"])
def test_setting_that_is_no_number_is_refused_in_a_sentence(name: str, text: str) -> None:
    with pytest.raises(UsageError, match=re.escape(f"{name} {text!r} is not a whole number")):
        read_broker_settings({name: text}, JAVA)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("offsets.retention.minute", "offsets.retention.minutes"),
        ("offset.retention.minutes", "offsets.retention.minutes"),
        ("Offsets.Retention.Minutes", "offsets.retention.minutes"),
        ("offsets.retention.ms", "offsets.retention.minutes"),
        ("offsets.retention.hours", "offsets.retention.minutes"),
        ("group.consumer.assignor", "group.consumer.assignors"),
        ("group.consumer.asignor", "group.consumer.assignors"),
        ("group.share.assignor", "group.share.assignors"),
        ("offsets.topic.num.partition", "offsets.topic.num.partitions"),
        ("log.retention.hour", "log.retention.hours"),
        ("log.retentoin.hours", "log.retention.hours"),
        ("log.retentions.hours", "log.retention.hours"),
    ],
)
def test_a_misspelled_setting_was_ignored_without_a_word(name: str, meant: str) -> None:
    with pytest.raises(UsageError, match=re.escape(f"{name!r} is not a setting of a Kafka broker. Did you mean {meant}?")):
        refuse_misspelled_names({"broker.id": "1", name: "5"})


def test_other_settings_of_a_server_properties_are_left_alone() -> None:
    refuse_misspelled_names(dict.fromkeys(kafka_setting_names(), "1"))
    others = [
        *("broker.id", "confluent.metrics.reporter.bootstrap.servers", "confluent.offsets.topic.num.partitions", "my.own.setting"),
        *("listener.name.internal.ssl.keystore.location", "listener.name.a.plain.sasl.jaas.config", "rlmm.config.replication.factor"),
        *("group.streams.assignors", "audit.retention.minutes", "alone"),
    ]
    refuse_misspelled_names(dict.fromkeys(others, "1"))


@pytest.mark.parametrize("properties", [{}, {"my.own.setting": "1"}, {"bootstrap.servers": "localhost:9092", "group.id": "g"}])
def test_a_file_without_a_single_setting_of_kafka_was_taken_for_the_brokers(properties: dict[str, str]) -> None:
    with pytest.raises(UsageError, match=r"no line is a setting of a Kafka broker"):
        refuse_misspelled_names(properties)


def test_the_settings_file_of_the_project_is_one() -> None:
    path = Path(__file__).parents[2] / "conf" / "coordinator.properties"
    properties = read_properties(str(path), "The settings file")
    refuse_misspelled_names(properties)
    assert read_broker_settings(properties, JAVA) == read_broker_settings({}, JAVA)


def test_the_settings_file_of_the_project_describes_every_setting_that_is_read() -> None:
    text = (Path(__file__).parents[2] / "conf" / "coordinator.properties").read_text(encoding="utf-8")
    described = set(re.findall(r"^(?:# )?([a-z.]+)=", text, re.MULTILINE))
    assert described == {"offsets.retention.minutes", *SETTINGS_OF_RUNS}
