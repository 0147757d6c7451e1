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
# # Which consumer groups are there, where do they stand, and what will they lose?
#
# Nine questions to a log of `__consumer_offsets`, by functions on DataFrames. Only Spark is needed, no warehouse.

# %% tags=["parameters"]
LOGS = "../demo-logs/night-3"  # a broker's log directory, or a URI of one; `groupcoord demo` writes this one
DAYS_LATER = 2  # days from the newest record to the cleanup

# %%
import matplotlib.pyplot as plt
from pyspark.sql import functions as F

from groupcoord_spark.dataframes import decode, expire, rebalances, register, replay
from groupcoord_spark.spark.session import session

spark = session()
register(spark)
# Any frame with key, value, partition and offset will do, for example spark.table("bronze.consumer_offsets").
raw = spark.read.format("consumer_offsets").load(LOGS)

# %% [markdown]
# ## What is in the log?

# %%
records = decode(raw).cache()
kinds = records.groupBy("key_type", "key_name").agg(
    F.count("*").alias("records"), F.count_if("is_tombstone").alias("tombstones"), F.count("error.code").alias("not_decoded")
)
of_kinds = kinds.orderBy("key_type").toPandas().convert_dtypes()
of_kinds

# %% [markdown]
# Records without a key type are the control records that end transactions.

# %% [markdown]
# ## Which groups are there, and in which state?

# %%
state = replay(records)
columns = ["group_id", "group_type", "state", "is_simple", "protocol", "generation", "member_count", "offset_count"]
groups = state.groups.select(*columns).orderBy("group_id").toPandas().convert_dtypes()
groups

# %% [markdown]
# A classic group is Stable when it has members and Empty when it has none; a simple group has offsets and nothing else.

# %%
by_state = groups.groupby(["group_type", "state"]).size().unstack(fill_value=0)
figure, axes = plt.subplots(figsize=(8, 3))
by_state.plot.barh(stacked=True, ax=axes)
axes.set(title="Groups by type and state", xlabel="groups", ylabel="")
figure.tight_layout()
plt.show()

# %% [markdown]
# ## Where does each group stand?

# %%
standing = state.committed_offsets.groupBy("group_id", "topic").agg(
    F.count("*").alias("partitions"),
    F.min("committed_offset").alias("lowest"),
    F.max("committed_offset").alias("highest"),
    F.max("commit_timestamp").alias("newest"),
)
standing.orderBy("group_id", "topic").toPandas()

# %% [markdown]
# `committed_offset` is the next record that the group will read. The lag also needs the topics' end offsets.

# %% [markdown]
# ## Who holds which partition?

# %%
held = state.assignments.where("kind = 'current'").select("cluster", "group_id", "member_id", "topic", "partition")
members = state.members.select("cluster", "group_id", "member_id", "client_id", "instance_id", "client_host")
readers = held.join(members, on=["cluster", "group_id", "member_id"], how="left")
readers.groupBy("group_id", "client_id", "topic").agg(F.sort_array(F.collect_list("partition")).alias("partitions")).orderBy(
    "group_id", "client_id", "topic"
).toPandas().convert_dtypes()

# %% [markdown]
# A member without a row here is in the group and was given nothing.

# %% [markdown]
# ## Which members did a group have when its generation was complete?

# %%
of_groups = records.where("group_metadata IS NOT NULL").select("group_id", "record_offset", "group_metadata.*")
member = F.explode("members").alias("member")
subscribed = of_groups.select("group_id", "record_offset", "generation", "protocol", member).select(
    "group_id",
    "record_offset",
    "generation",
    "protocol",
    "member.client_id",
    "member.subscription.topics",
    F.size("member.assignment").alias("assigned_topics"),
)
subscribed.orderBy("group_id", "record_offset", "client_id").toPandas().convert_dtypes()

# %% [markdown]
# Each record of a classic group has all of its members, with the topics that they asked for and the partitions that they were given.

# %% [markdown]
# ## What expires within a week after the cleanup, and why?

# %%
DAY_MS = 86_400_000
as_of = records.agg(F.max("record_timestamp_ms")).first()[0] + DAYS_LATER * DAY_MS
leaves = expire(state, retention="7d", as_of=as_of)
days_left = ((F.unix_millis("expires_at") - as_of) / DAY_MS).alias("days_left")
soon = leaves.offsets.select("group_id", "topic", "partition", "rule", "expired", "expires_at", days_left).where("days_left < 7")
expiring = soon.orderBy("expires_at", "group_id", "topic", "partition").toPandas()
expiring.groupby(["group_id", "topic", "rule", "expired"]).agg(partitions=("partition", "size"), first=("expires_at", "min"))

# %% [markdown]
# `X-B0` is an expiry that the client asked for, `X-B1` counts from the moment the group became Empty, `X-B2` (simple groups) and
# `X-B3` (topics no longer subscribed) count from the commit.

# %%
figure, axes = plt.subplots(figsize=(8, 3))
axes.hist(expiring["days_left"].clip(lower=-1), bins=[quarter / 4 for quarter in range(-4, 29)])
axes.set(title="Offsets that expire within a week", xlabel="days after the cleanup", ylabel="offsets")
figure.tight_layout()
plt.show()

# %% [markdown]
# Whatever stands left of 0 has expired already: that cleanup removes it.

# %% [markdown]
# ## What is protected, and why?

# %%
kept = leaves.offsets.where("expires_at IS NULL").groupBy("rule", "blocked_by")
kept.agg(F.count("*").alias("offsets"), F.countDistinct("group_id").alias("groups")).orderBy("rule", "blocked_by").toPandas()

# %% [markdown]
# `subscribed` holds as long as the group is live and subscribes to the topic, however long ago the commit was.

# %% [markdown]
# ## How did the groups rebalance?

# %%
changes = rebalances(records).select("group_id", "record_timestamp", "kind", "to_generation", "cause", "member_count", "partitions_moved")
changes.orderBy("group_id", "record_timestamp").toPandas().convert_dtypes()

# %% [markdown]
# Rebalances that were not completed are not in the log.

# %% [markdown]
# ## What could not be read, and what was doubtful?

# %%
lost, doubts = state.quarantined_records.toPandas(), state.warnings.toPandas()
lost, doubts

# %% [markdown]
# Two empty tables mean that every record was read without a doubt.
