"""Kafka's ``__consumer_offsets``, decoded, replayed and expired exactly as the group coordinator would."""

__version__ = "1.0.0"
