"""What becomes of the client's own objects. The rest is tried with a real broker, in tests/integration."""

from __future__ import annotations

import pytest

confluent_kafka = pytest.importorskip("confluent_kafka")


def test_ids_of_topics_are_in_kafkas_own_alphabet() -> None:
    from groupcoord_spark.verification.broker import _uuid_text

    # librdkafka writes +/ for -_, and such ids name no topic of the log
    assert str(confluent_kafka.Uuid(-3, -9)) == "//////////3/////////9w"
    assert _uuid_text(confluent_kafka.Uuid(-3, -9)) == "__________3_________9w"
