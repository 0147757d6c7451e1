import pytest

from groupcoord_spark.errors import UsageError
from groupcoord_spark.simulator import ClusterTopic, Settings, read_settings
from groupcoord_spark.simulator.broker.settings import NO_TOPIC_ID


def test_settings_are_read_by_kafkas_names():
    topics = {"t": ClusterTopic(3)}
    actual = read_settings({"group.max.size": "2", "group.initial.rebalance.delay.ms": 0, "offsets.retention.minutes": 3}, topics)
    assert actual == Settings(group_max_size=2, group_initial_rebalance_delay_ms=0, offsets_retention_ms=180_000, topics=topics)


@pytest.mark.parametrize("properties", [{"group.max.sise": 2}, {"group.max.size": "two"}])
def test_a_setting_that_makes_no_sense_is_named(properties):
    with pytest.raises(UsageError, match=next(iter(properties))):
        read_settings(properties)


def test_a_broker_without_a_list_of_topics_knows_them_all():
    assert Settings().has_partition("any", 99)
    assert Settings().topic_id("any") == NO_TOPIC_ID
    known = Settings(topics={"t": ClusterTopic(3, "x" * 22)})
    assert [known.has_partition("t", partition) for partition in (-1, 0, 2, 3)] == [False, True, True, False]
    assert (known.has_partition("u", 0), known.topic_id("t"), known.topic_id("u")) == (False, "x" * 22, NO_TOPIC_ID)
