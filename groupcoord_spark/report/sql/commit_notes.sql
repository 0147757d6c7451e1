-- What clients wrote into the metadata of their commits, texts of applications last.
SELECT group_id, topic, "partition", committed_offset, kind,
  CASE WHEN stream_time_ms BETWEEN 0 AND 253402300799999 THEN to_timestamp(stream_time_ms / 1000) END AS stream_time,
  done_beyond, encoding, metadata, commit_timestamp
FROM commit_notes
ORDER BY CASE kind WHEN 'text' THEN 1 ELSE 0 END, group_id, topic, "partition"
