"""Live topics, as far as no broker is needed."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from groupcoord_spark.errors import UsageError
from groupcoord_spark.sources import live
from groupcoord_spark.sources.live import live_topic


def test_a_uri_names_brokers_and_if_it_must_be_the_topic():
    assert (live_topic(["kafka://a:9092"], {}).brokers, live_topic(["kafka://a:9092"], {}).topic) == ("a:9092", "__consumer_offsets")
    topic = live_topic(["kafka://a:9092,[::1]:9093/copy/"], {})
    assert (topic.brokers, topic.topic, topic.uri) == ("a:9092,[::1]:9093", "copy", "kafka://a:9092,[::1]:9093/copy")


@pytest.mark.parametrize("uri", ["kafka://", "kafka://host", "kafka://a:9092,b", "kafka://a:x"])
def test_what_is_no_address_is_told(uri):
    with pytest.raises(UsageError, match=r"is not an address of Kafka\. Write kafka://host:9092"):
        live_topic([uri], {})


def test_user_and_password_have_no_place_in_a_uri_and_are_not_repeated():
    with pytest.raises(UsageError, match="--command-config") as told:
        live_topic(["kafka://me:hush@a:9092"], {})
    assert "hush" not in str(told.value)


def test_several_topics_are_refused():
    with pytest.raises(UsageError, match="2 topics are given"):
        live_topic(["kafka://a:9092", "kafka://b:9092"], {})


def test_options_of_the_client_are_passed_on_but_for_what_the_connector_sets_and_never_shown():
    topic = live_topic(["kafka://a:9092"], {"sasl.jaas.config": "hush", "group.id": "g", "isolation.level": "read_committed"})
    assert topic.options == {"sasl.jaas.config": "hush"}
    assert "hush" not in repr(topic)


def test_the_clients_own_sentence_about_a_setting_does_not_show_its_value(monkeypatch):
    from py4j.protocol import Py4JJavaError

    class RefusedError(Py4JJavaError):
        def __init__(self):
            pass

    def refuse(properties):
        raise RefusedError

    kafka = SimpleNamespace(clients=SimpleNamespace(admin=SimpleNamespace(AdminClient=SimpleNamespace(create=refuse))))
    java = SimpleNamespace(util=SimpleNamespace(Properties=lambda: SimpleNamespace(put=lambda name, value: None)))
    jvm = SimpleNamespace(java=java, org=SimpleNamespace(apache=SimpleNamespace(kafka=kafka)))
    message = "ConfigException: Invalid value S3CRET for configuration request.timeout.ms"
    monkeypatch.setattr(live, "_innermost_message", lambda error: message)
    spark = SimpleNamespace(sparkContext=SimpleNamespace(_jvm=jvm))
    topic = live_topic(["kafka://b:9092"], {"request.timeout.ms": "S3CRET"})
    with pytest.raises(UsageError, match="Invalid value … for configuration"), live._admin_client(spark, topic):
        pass
