-- Where each share group stands in each partition, and how many records the group has not been given yet: high watermark less start_offset less
-- delivery_complete_count, as kafka-share-groups --describe prints it. Markers count too, and so do records
-- in flight, which no log names. lag is NULL where nothing can be said, with the reason in remark: nothing_read (the group has no start offset
-- yet), no_count (the leader was older than Kafka 4.2 and kept no count), topic_gone (the topic with this id was deleted), no_sample (no
-- log end is known). acknowledged, archived and available_again count offsets of share_batches; untouched_or_in_flight are the others up to
-- the log end.
WITH newest AS (
  SELECT e.cluster, e.topic, e.partition, MAX(e.end_offset) AS end_offset, MAX(e.sampled_at) AS sampled_at, MAX(e.source) AS source
  FROM log_ends e
  JOIN (SELECT cluster, MAX(sampled_at) AS sampled_at FROM log_ends GROUP BY cluster) n ON n.cluster = e.cluster AND n.sampled_at = e.sampled_at
  GROUP BY e.cluster, e.topic, e.partition
),
metadata AS (
  SELECT cluster, BOOL_AND(all_topics_known) AS all_topics_known FROM topics GROUP BY cluster
),
batches AS (
  SELECT cluster, group_id, topic_id, partition,
    SUM(CASE WHEN delivery_state = 2 THEN last_offset - first_offset + 1 ELSE 0 END) AS acknowledged,
    SUM(CASE WHEN delivery_state = 4 THEN last_offset - first_offset + 1 ELSE 0 END) AS archived,
    SUM(CASE WHEN delivery_state = 0 THEN last_offset - first_offset + 1 ELSE 0 END) AS available_again
  FROM share_batches GROUP BY cluster, group_id, topic_id, partition
),
states AS (
  SELECT s.cluster, s.group_id, s.topic, s.topic_id, s.partition, s.leader_epoch, s.start_offset, s.delivery_complete_count,
    COALESCE(t.is_deleted, m.all_topics_known, FALSE) AS is_gone, e.end_offset, e.sampled_at, e.source,
    COALESCE(b.acknowledged, 0) AS acknowledged, COALESCE(b.archived, 0) AS archived, COALESCE(b.available_again, 0) AS available_again
  FROM share_offsets s
  LEFT JOIN topics t ON t.cluster = s.cluster AND t.topic_id = s.topic_id
  LEFT JOIN metadata m ON m.cluster = s.cluster
  LEFT JOIN newest e ON e.cluster = s.cluster AND e.topic = s.topic AND e.partition = s.partition
  LEFT JOIN batches b ON b.cluster = s.cluster AND b.group_id = s.group_id AND b.topic_id = s.topic_id AND b.partition = s.partition
)
SELECT cluster, group_id, topic, topic_id, partition, leader_epoch, start_offset, CASE WHEN NOT is_gone THEN end_offset END AS end_offset,
  CASE WHEN NOT is_gone AND end_offset - start_offset - delivery_complete_count < 0 THEN 0
    WHEN NOT is_gone THEN end_offset - start_offset - delivery_complete_count END AS lag,
  CASE WHEN is_gone THEN 'topic_gone' WHEN start_offset IS NULL THEN 'nothing_read' WHEN delivery_complete_count IS NULL THEN 'no_count'
    WHEN end_offset IS NULL THEN 'no_sample' END AS remark,
  delivery_complete_count, acknowledged, archived, available_again,
  CASE WHEN is_gone OR start_offset IS NULL OR end_offset IS NULL THEN NULL
    WHEN end_offset - start_offset < acknowledged + archived + available_again THEN 0
    ELSE end_offset - start_offset - acknowledged - archived - available_again END AS untouched_or_in_flight,
  CASE WHEN NOT is_gone THEN sampled_at END AS sampled_at, CASE WHEN NOT is_gone THEN source END AS source
FROM states
