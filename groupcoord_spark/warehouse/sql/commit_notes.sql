-- What clients wrote into the metadata of the committed offsets, where there is any. kind is a guess from the form of the text:
-- kafka_streams (the stream time of the task in stream_time_ms, epoch milliseconds; NULL: no record had a time yet), parallel_consumer
-- (encoding names how the offsets beyond the committed one are written that are done already), text (anything else).
-- Both clients write bytes in base64. The functions for base64 differ between engines, so the numbers are computed from the characters:
-- the first byte is the version or the encoding, and for Kafka Streams the next eight bytes are the time.
WITH noted AS (
  SELECT cluster, group_id, topic, partition, committed_offset, commit_timestamp, metadata,
    'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/' AS alphabet
  FROM committed_offsets
  WHERE metadata <> ''
),
formed AS (
  SELECT n.*,
    CASE WHEN LENGTH(metadata) >= 8 AND MOD(LENGTH(metadata), 4) = 0 AND TRANSLATE(metadata, CONCAT(alphabet, '='), '') = ''
      THEN TRUE ELSE FALSE END AS is_base64,
    POSITION(SUBSTRING(metadata, 1, 1) IN alphabet) - 1 AS sextet_1,
    POSITION(SUBSTRING(metadata, 2, 1) IN alphabet) - 1 AS sextet_2
  FROM noted n
),
judged AS (
  SELECT f.*, sextet_1 * 4 + CAST(FLOOR(sextet_2 / 16.0E0) AS INT) AS first_byte,
    CASE WHEN NOT is_base64 THEN 'text'
      WHEN metadata LIKE 'AQAAA%' OR metadata LIKE 'AgAAA%' OR metadata LIKE 'Af//////////%' OR metadata LIKE 'Av//////////%'
        THEN 'kafka_streams'
      WHEN sextet_1 * 4 + CAST(FLOOR(sextet_2 / 16.0E0) AS INT) IN (74, 76, 97, 101, 108, 110, 111, 112, 115) THEN 'parallel_consumer'
      ELSE 'text' END AS kind
  FROM formed f
)
SELECT cluster, group_id, topic, partition, committed_offset, commit_timestamp, kind,
  CASE WHEN kind = 'kafka_streams' AND SUBSTRING(metadata, 3, 3) = 'AAA' THEN
    CAST(POSITION(SUBSTRING(metadata, 6, 1) IN alphabet) - 1 AS BIGINT) * 68719476736
    + CAST(POSITION(SUBSTRING(metadata, 7, 1) IN alphabet) - 1 AS BIGINT) * 1073741824
    + CAST(POSITION(SUBSTRING(metadata, 8, 1) IN alphabet) - 1 AS BIGINT) * 16777216
    + CAST(POSITION(SUBSTRING(metadata, 9, 1) IN alphabet) - 1 AS BIGINT) * 262144
    + CAST(POSITION(SUBSTRING(metadata, 10, 1) IN alphabet) - 1 AS BIGINT) * 4096
    + CAST(POSITION(SUBSTRING(metadata, 11, 1) IN alphabet) - 1 AS BIGINT) * 64
    + CAST(POSITION(SUBSTRING(metadata, 12, 1) IN alphabet) - 1 AS BIGINT) END AS stream_time_ms,
  CASE WHEN kind = 'parallel_consumer' THEN
    CASE first_byte WHEN 74 THEN 'run lengths, compressed' WHEN 76 THEN 'bytes' WHEN 97 THEN 'bit set, compressed'
      WHEN 101 THEN 'run lengths, version 2' WHEN 108 THEN 'bit set' WHEN 110 THEN 'run lengths'
      WHEN 111 THEN 'bit set, version 2' WHEN 112 THEN 'run lengths, version 2, compressed'
      WHEN 115 THEN 'bit set, version 2, compressed' END END AS encoding,
  metadata
FROM judged
