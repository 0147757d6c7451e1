-- Which clients are members of groups: client id, host, library, protocol, static membership, assignor, timeouts. library is a guess
-- from the usual form of member ids and client ids (NULL: the ids are the user's own).
SELECT m.cluster, m.client_id, m.client_host,
  CASE WHEN m.client_id LIKE 'rdkafka%' OR m.member_id LIKE 'rdkafka-%' THEN 'librdkafka'
    WHEN m.client_id LIKE 'kafka-python%' THEN 'kafka-python'
    WHEN m.client_id LIKE 'aiokafka%' THEN 'aiokafka'
    WHEN m.client_id LIKE 'sarama%' THEN 'sarama'
    WHEN m.client_id LIKE 'kgo%' THEN 'franz-go'
    WHEN m.client_id LIKE 'kafkajs%' THEN 'kafkajs'
    WHEN m.member_id LIKE '%github.com/segmentio/kafka-go%' THEN 'kafka-go'
    WHEN g.protocol = 'RoundRobinAssigner' THEN 'kafkajs'
    WHEN g.protocol_type = 'connect' THEN 'Kafka Connect'
    WHEN g.group_type = 'streams' OR m.client_id LIKE '%-StreamThread-%' OR g.protocol = 'stream' THEN 'Kafka Streams'
    WHEN m.client_id LIKE 'consumer-%' OR m.client_id LIKE 'console-consumer%' THEN 'Java'
    END AS library,
  CASE WHEN m.uses_classic_protocol THEN 'classic' ELSE g.group_type END AS protocol,
  g.protocol_type,
  CASE WHEN m.instance_id IS NULL THEN FALSE ELSE TRUE END AS is_static,
  COALESCE(m.server_assignor, g.protocol) AS assignor,
  m.session_timeout_ms, m.rebalance_timeout_ms, m.rack_id,
  COUNT(*) AS members, COUNT(DISTINCT m.group_id) AS group_ids, MIN(m.group_id) AS first_group_id
FROM members m
JOIN groups g ON g.cluster = m.cluster AND g.group_id = m.group_id
GROUP BY 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11
