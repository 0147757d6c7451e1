# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # What do people ask about consumer groups, and which table has the answer?
#
# Every answer of `why` and of the views on one warehouse, with the records that are its evidence and what it cannot know.
# Only the first cell needs Spark: it makes a warehouse of a log. The same statements run in Spark and Trino, and as `groupcoord sql`.

# %% tags=["parameters"]
LOGS = "../tests/golden/vanished/logs"  # a broker's log directory, or a URI of one
WAREHOUSE = None  # a warehouse with runs of your own; None: a new one is made of LOGS
CLUSTER = None  # None: the warehouse's only cluster
GROUP = None  # the group that the first answers are about; None: the one that lost most offsets

# %%
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt

import groupcoord_spark as gc
from groupcoord_spark.answers.group_history import Question
from groupcoord_spark.answers.why import why
from groupcoord_spark.coordinator.semantics import semantics_for
from groupcoord_spark.warehouse.sql import SnapshotInDuckDB

if WAREHOUSE is None:
    WAREHOUSE = str(Path(tempfile.mkdtemp()) / "warehouse")
    gc.run_nightly(LOGS, WAREHOUSE, cluster="made-of-a-log", retention="1m")
warehouse = gc.open_warehouse(WAREHOUSE)
cluster = CLUSTER or warehouse.clusters_with_nightly_runs()[0]
run = warehouse.run(cluster)
night = SnapshotInDuckDB(warehouse, run=run)


def answer(statement):
    return night.rows(statement).to_pandas().convert_dtypes()


# %% [markdown]
# ## Why is an offset gone, or still there?

# %%
losses = "SELECT group_id FROM tombstone_causes WHERE topic IS NOT NULL GROUP BY group_id ORDER BY COUNT(*) DESC, group_id LIMIT 1"
group = GROUP or answer(losses)["group_id"][0]
rules = semantics_for(run.semantics, run.broker_version).with_settings(run.settings)
story = why(warehouse, Question(cluster, group), rules)
for step in story.steps:
    print(step.event, step.what, *step.records, sep=" | ")
print(story.conclusion)

# %% [markdown]
# `2@46` is the record with offset 46 of partition 2 of `__consumer_offsets`. No record names a cause: the
# certainty says how sure it is.

# %% [markdown]
# ## Which cause has each tombstone?

# %%
answer("""
SELECT cause, key_type, COUNT(*) AS tombstones, MIN(record_timestamp) AS first_at
FROM tombstone_causes GROUP BY cause, key_type ORDER BY tombstones DESC
""")

# %% [markdown]
# `unknown`: the history does not go back to the last commit, or the records have no times.

# %% [markdown]
# ## What goes on which day, and what stays?

# %%
answer("SELECT day, group_id, topic, what, offsets, first_at, never_because FROM expiring ORDER BY first_at NULLS LAST, group_id, topic")

# %% [markdown]
# This is so while every group stays as it is: a commit or a member that joins changes it.

# %% [markdown]
# ## Which committed offsets went back, and how?

# %%
rewound = answer("""
SELECT group_id, topic, "partition", from_committed_offset, to_committed_offset, kind, rewound_at,
  offsets_partition, record_offset, certainty
FROM rewinds ORDER BY back_by DESC
""")
rewound

# %% [markdown]
# `kind` is the cause, or `two_writers`; `certainty` says how sure it is.

# %%
answer("""
SELECT group_id, topic, "partition", from_committed_offset, to_committed_offset, cause, certainty
FROM skips
""")

# %% [markdown]
# Records that were never read; on this sample none.

# %%
figure, axes = plt.subplots(figsize=(8, 3))
for row in rewound.itertuples():
    places = answer(f"""
SELECT record_offset, committed_offset FROM counted_commits
WHERE group_id = '{row.group_id}' AND topic = '{row.topic}' AND "partition" = {row.partition} AND NOT is_tombstone ORDER BY record_offset
""")
    label = f"{row.group_id} {row.topic}-{row.partition}"
    axes.step(places["record_offset"], places["committed_offset"], where="post", marker="o", label=label)
axes.set(title="Partitions whose committed offset went back", xlabel="offset of the record", ylabel="committed offset")
axes.legend(fontsize="x-small")
figure.tight_layout()
plt.show()

# %% [markdown]
# A line that falls has gone back.

# %% [markdown]
# ## Who reads a topic?

# %%
answer("""
SELECT topic, group_id, state, committed_partitions, assigned_partitions, members, subscribed, last_commit
FROM topic_readers ORDER BY topic, group_id
""")

# %% [markdown]
# A subscription by name is known only for topics that some table names.

# %% [markdown]
# ## Which partition stands still although its group moves?

# %%
answer("""
SELECT group_id, topic, "partition", member_id, committed_offset, commits, advance, median_advance, completeness
FROM stalled
""")

# %% [markdown]
# A partition into which nobody writes looks the same.

# %% [markdown]
# ## Which groups have no members?

# %%
answer("""
SELECT group_id, group_type, is_simple, topics, offsets, empty_since, idle_since, removed_at
FROM idle_groups ORDER BY idle_since
""")

# %% [markdown]
# A group of offsets alone never has members and may well have a reader, which no record shows.

# %% [markdown]
# ## Which topics have offsets and no reader?

# %%
answer("""
SELECT topic, groups_with_offsets, offsets, last_commit
FROM orphan_topics
""")

# %% [markdown]
# Whether the topic still exists is in no record.

# %% [markdown]
# ## Which partitions has a member without a committed offset?

# %%
answer("""
SELECT group_id, topic, "partition", member_id, has_pending, commits, completeness
FROM assigned_never_committed
""")

# %% [markdown]
# `commits` counts the history and is a lower bound where completeness is below 1.

# %% [markdown]
# ## How often does a group commit?

# %%
answer("""
SELECT group_id, topic, bucket_start, commits, tombstones, bytes, completeness
FROM commit_rate ORDER BY commits DESC LIMIT 10
""")

# %% [markdown]
# The log cleaner removes superseded commits: commits / completeness is an estimate.

# %% [markdown]
# ## Who writes most, and how much of it says nothing new?

# %%
answer("""
SELECT group_id, topic, commits, bytes, duplicate_share, share_of_commits, completeness
FROM hot_committers ORDER BY commits DESC LIMIT 10
""")

# %% [markdown]
# A duplicate commits the same offset as the commit before it in the history.

# %% [markdown]
# ## When did each group begin and end?

# %%
answer("""
SELECT group_id, is_there, first_record_at, removed_at, records, bytes, completeness
FROM group_lifetimes ORDER BY first_record_at
""")

# %% [markdown]
# Below a completeness of 1 a group may have begun earlier.

# %% [markdown]
# ## Which families of group ids are there?

# %%
answer("""
SELECT template, group_ids, group_ids_there, births_a_day, records, bytes
FROM group_templates ORDER BY bytes DESC
""")

# %% [markdown]
# Groups whose records were all removed before the first run are not counted.

# %% [markdown]
# ## Which groups fill the offsets topic?

# %%
answer("""
SELECT group_id, records, bytes, live_records, live_bytes, tombstone_records, completeness
FROM storage_by_group ORDER BY bytes DESC LIMIT 10
""")

# %% [markdown]
# `live_bytes` is what stays when the log cleaner is done, and is complete.

# %% [markdown]
# ## Which clients are members?

# %%
answer("""
SELECT client_id, client_host, library, protocol, assignor, is_static, session_timeout_ms, members
FROM client_inventory ORDER BY members DESC
""")

# %% [markdown]
# `library` is a guess from the usual form of ids.

# %% [markdown]
# ## What keeps a group from the consumer protocol?

# %%
answer("""
SELECT group_id, assignor, member_count, is_ready, obstacles
FROM protocol_readiness ORDER BY is_ready, group_id
""")

# %% [markdown]
# The bounds of the session timeout are the broker's defaults: a broker's own are in no record.

# %% [markdown]
# ## Which groups rebalance most, and because of whom?

# %%
answer("""
SELECT group_id, rebalances, lifetime_hours, busiest_hour_rebalances, main_cause, main_member, completeness
FROM rebalance_storms ORDER BY rebalances DESC
""")

# %% [markdown]
# The generation counts all rebalances; causes are those of the rebalances whose records are left.

# %% [markdown]
# ## How did rebalances spread over the days?

# %%
answer("""
SELECT group_id, day, rebalances, members_joined, members_left, by_joining, by_leaving, shortest_ms
FROM rebalance_rate ORDER BY day, group_id
""")

# %% [markdown]
# Rebalances that were not completed are not in the log.

# %% [markdown]
# ## Which transactions are open?

# %%
answer("""
SELECT group_id, producer_id, offsets, offsets_partition, first_record_offset, open_since
FROM open_transactions ORDER BY open_since
""")

# %% [markdown]
# Whether the producer is alive is in no record; `kafka-transactions` asks it.

# %% [markdown]
# ## Which commits carry no leader epoch?

# %%
answer("""
SELECT group_id, topic, offsets, offsets_without_epoch
FROM no_leader_epoch ORDER BY offsets_without_epoch DESC LIMIT 10
""")

# %% [markdown]
# Whether a log was truncated is in no record.

# %% [markdown]
# ## Where do share groups stand, and how many records are they behind?

# %%
answer("""
SELECT group_id, topic, partition, start_offset, end_offset, lag, remark
FROM share_lag ORDER BY lag DESC NULLS LAST, group_id, topic, partition
""")

# %% [markdown]
# Share groups keep their offsets in `__share_group_state`: only a copy of a whole log directory has them.

# %% [markdown]
# ## Who may read as which group?

# %%
answer("""
SELECT group_id, principal, host, permission, operation, is_overruled
FROM may_read ORDER BY group_id, principal
""")

# %% [markdown]
# Rules are in the cluster's metadata, `__cluster_metadata-0`; superusers are settings of the brokers, and in no log.

# %% [markdown]
# ## Which topics were created again?

# %%
answer("""
SELECT topic, evidence, topic_ids, first_commit_after, stale_offsets
FROM topic_recreated
""")

# %% [markdown]
# The log cleaner removes commits with older topic ids, so a topic may be missing.

# %% [markdown]
# ## Do two applications use one group id?

# %%
answer("""
SELECT group_id, member_pairs_apart, first_topic, other_topic, one_member_id, other_member_id
FROM shared_group_id
""")

# %% [markdown]
# A group that is divided on purpose looks the same.

# %% [markdown]
# ## How far is each group behind?

# %%
answer("""
SELECT group_id, topic, "partition", lag, remark, hours_behind, lost, hours_to_loss, sampled_at
FROM lag ORDER BY lag DESC NULLS LAST LIMIT 10
""")

# %%
answer("""
SELECT group_id, lag, max_lag, partitions, partitions_with_lag, partitions_without_end
FROM lag_by_group ORDER BY lag DESC NULLS LAST, group_id LIMIT 10
""")

# %% [markdown]
# Ends of logs come from `nightly --end-offsets` or `--with-end-offsets`: without a sample `remark` is `no_sample`.

# %% [markdown]
# ## Does the lag grow?

# %%
answer("""
SELECT group_id, topic, "partition", sampled_at, lag, produced, consumed, deleted, hours_to_clear, hours_to_loss,
  completeness
FROM lag_history ORDER BY sampled_at DESC, lag DESC LIMIT 10
""")

# %% [markdown]
# One row for each sample: the pace needs two of them.

# %% [markdown]
# ## What did clients write into the metadata of their commits?

# %%
answer("""
SELECT group_id, topic, "partition", kind, stream_time_ms, done_beyond, encoding, metadata
FROM commit_notes ORDER BY kind, group_id LIMIT 10
""")

# %% [markdown]
# `kind` is a guess from the form of the text.

# %% [markdown]
# ## Which groups moved from another cluster?

# %%
answer("""
SELECT *
FROM cutover
""")

# %% [markdown]
# One cluster alone has no rows: the warehouse needs runs of both.

# %% [markdown]
# ## How much of the log does the history have?

# %%
answer("""
SELECT offsets_partition, incarnation, records, end_offset, completeness
FROM log_completeness ORDER BY offsets_partition
""")

# %% [markdown]
# Every count of this page is a lower bound where completeness is below 1.
