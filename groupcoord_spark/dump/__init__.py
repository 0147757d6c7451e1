"""Every record as a line of JSON, as Kafka's own formatters print it; hosts, ids and metadata can be redacted. No Spark."""
