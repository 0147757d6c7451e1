-- What clients wrote into the metadata of the committed offsets, where there is any. kind is a guess from the form of the text:
-- kafka_streams (the stream time of the task in stream_time_ms, epoch milliseconds; NULL: no record had a time yet), parallel_consumer
-- (offsets beyond the committed one that are done already: encoding names their format, done_beyond is their number, NULL where the list is
-- compressed), text (anything else).
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
),
digits AS (
  SELECT digit FROM (VALUES (0), (1), (2), (3), (4), (5), (6), (7), (8), (9)) AS d(digit)
),
places AS (
  -- Places of groups of four characters, which are three bytes. A broker takes 4,096 bytes of metadata unless it is told otherwise.
  SELECT a.digit + 10 * b.digit + 100 * c.digit + 1000 * d.digit AS place
  FROM digits a CROSS JOIN digits b CROSS JOIN digits c CROSS JOIN digits d
),
sextets AS (
  SELECT j.cluster, j.group_id, j.topic, j.partition, j.first_byte, p.place,
    LENGTH(j.metadata) / 4 * 3 - LENGTH(j.metadata) + LENGTH(REPLACE(j.metadata, '=', '')) AS size,
    POSITION(SUBSTRING(j.metadata, 4 * p.place + 1, 1) IN j.alphabet) - 1 AS sextet_1,
    POSITION(SUBSTRING(j.metadata, 4 * p.place + 2, 1) IN j.alphabet) - 1 AS sextet_2,
    POSITION(SUBSTRING(j.metadata, 4 * p.place + 3, 1) IN j.alphabet) - 1 AS sextet_3,
    POSITION(SUBSTRING(j.metadata, 4 * p.place + 4, 1) IN j.alphabet) - 1 AS sextet_4
  FROM judged j
  JOIN places p ON 4 * p.place < LENGTH(j.metadata)
  WHERE j.kind = 'parallel_consumer' AND j.first_byte IN (76, 101, 108, 110, 111)
),
octets AS (
  SELECT cluster, group_id, topic, partition, first_byte, size, 3 * place + digit AS octet_at,
    CASE digit WHEN 0 THEN sextet_1 * 4 + CAST(FLOOR(sextet_2 / 16.0E0) AS INT)
      WHEN 1 THEN MOD(sextet_2, 16) * 16 + CAST(FLOOR(sextet_3 / 4.0E0) AS INT)
      ELSE MOD(sextet_3, 4) * 64 + sextet_4 END AS octet
  FROM sextets JOIN digits ON digit < 3
),
done AS (
  -- Bit sets follow their length (2 bytes, in version 2 4 bytes); run lengths (2 or 4 bytes each) begin with a run that is not done.
  SELECT cluster, group_id, topic, partition, SUM(CASE
    WHEN first_byte = 76 THEN CASE WHEN octet = 1 THEN 1 ELSE 0 END
    WHEN first_byte = 108 AND octet_at < 3 OR first_byte = 111 AND octet_at < 5 THEN 0
    WHEN first_byte IN (108, 111) THEN MOD(octet, 2) + MOD(FLOOR(octet / 2.0E0), 2) + MOD(FLOOR(octet / 4.0E0), 2)
      + MOD(FLOOR(octet / 8.0E0), 2) + MOD(FLOOR(octet / 16.0E0), 2) + MOD(FLOOR(octet / 32.0E0), 2) + MOD(FLOOR(octet / 64.0E0), 2)
      + MOD(FLOOR(octet / 128.0E0), 2)
    WHEN first_byte = 110 THEN CASE MOD(octet_at - 1, 4) WHEN 2 THEN octet * 256.0E0 WHEN 3 THEN octet ELSE 0 END
    ELSE CASE MOD(octet_at - 1, 8) WHEN 4 THEN octet * 16777216.0E0 WHEN 5 THEN octet * 65536.0E0 WHEN 6 THEN octet * 256.0E0
      WHEN 7 THEN octet ELSE 0 END
    END) AS done_beyond
  FROM octets
  WHERE octet_at > 0 AND octet_at < size
  GROUP BY cluster, group_id, topic, partition
)
SELECT j.cluster, j.group_id, j.topic, j.partition, j.committed_offset, j.commit_timestamp, j.kind,
  CASE WHEN kind = 'kafka_streams' AND SUBSTRING(metadata, 3, 3) = 'AAA' THEN
    CAST(POSITION(SUBSTRING(metadata, 6, 1) IN alphabet) - 1 AS BIGINT) * 68719476736
    + CAST(POSITION(SUBSTRING(metadata, 7, 1) IN alphabet) - 1 AS BIGINT) * 1073741824
    + CAST(POSITION(SUBSTRING(metadata, 8, 1) IN alphabet) - 1 AS BIGINT) * 16777216
    + CAST(POSITION(SUBSTRING(metadata, 9, 1) IN alphabet) - 1 AS BIGINT) * 262144
    + CAST(POSITION(SUBSTRING(metadata, 10, 1) IN alphabet) - 1 AS BIGINT) * 4096
    + CAST(POSITION(SUBSTRING(metadata, 11, 1) IN alphabet) - 1 AS BIGINT) * 64
    + CAST(POSITION(SUBSTRING(metadata, 12, 1) IN alphabet) - 1 AS BIGINT) END AS stream_time_ms,
  CASE WHEN kind = 'parallel_consumer' THEN
    CASE j.first_byte WHEN 74 THEN 'run lengths, compressed' WHEN 76 THEN 'bytes' WHEN 97 THEN 'bit set, compressed'
      WHEN 101 THEN 'run lengths, version 2' WHEN 108 THEN 'bit set' WHEN 110 THEN 'run lengths'
      WHEN 111 THEN 'bit set, version 2' WHEN 112 THEN 'run lengths, version 2, compressed'
      WHEN 115 THEN 'bit set, version 2, compressed' END END AS encoding,
  metadata, CAST(d.done_beyond AS BIGINT) AS done_beyond
FROM judged j
LEFT JOIN done d ON d.cluster = j.cluster AND d.group_id = j.group_id AND d.topic = j.topic AND d.partition = j.partition
