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
# # Where did the committed offsets of my group go?
#
# One group, record by record: what it committed, what was deleted, and what a cleanup removes next. Only Spark is needed, no warehouse.

# %% tags=["parameters"]
LOGS = "../demo-logs/night-3"  # a broker's log directory, or a URI of one; `groupcoord demo` writes this one
GROUP = None  # None: the group with the most deleted offsets

# %%
import matplotlib.dates as mdates
import matplotlib.pyplot as plt
from pyspark.sql import functions as F

from groupcoord_spark.dataframes import decode, expire, of_groups, register, replay
from groupcoord_spark.spark.session import session

spark = session()
register(spark)
# Any frame with key, value, partition and offset will do, for example spark.table("bronze.consumer_offsets").
raw = spark.read.format("consumer_offsets").load(LOGS)

# %% [markdown]
# ## Which groups lost offsets?

# %%
records = decode(raw).cache()
deleted = records.where("is_tombstone AND key_type IN (0, 1)").groupBy("group_id").agg(F.count("*").alias("deleted_offsets"))
losers = deleted.orderBy(F.desc("deleted_offsets"), "group_id")
group = GROUP or losers.first().group_id
losers.toPandas()

# %% [markdown]
# Each row counts tombstones: records by which the broker, or somebody with an admin tool, deleted an offset.

# %% [markdown]
# ## What happened to the group, in order?

# %%
of_group = of_groups(records, group).where(F.col("group_id") == group)
story = of_group.select(
    F.timestamp_millis("record_timestamp_ms").alias("time"),
    "record_offset",
    "key_name",
    "topic",
    "partition",
    "offset_commit.committed_offset",
    F.col("group_metadata.generation").alias("generation"),
    F.size("group_metadata.members").alias("members"),
    "is_tombstone",
).orderBy("record_offset")
story.toPandas().convert_dtypes()

# %% [markdown]
# A tombstone has no committed offset; a record of the group itself with 0 members is the moment from which its offsets age.

# %%
of_partitions = story.where("topic IS NOT NULL").toPandas().groupby(["topic", "partition"])
shown = of_partitions.size().nlargest(12).index.sort_values()
figure, grid = plt.subplots(len(shown), sharex=True, squeeze=False, figsize=(8, 1 + 0.8 * len(shown)))
for axes, (topic, partition) in zip(grid[:, 0], shown, strict=True):
    rows = of_partitions.get_group((topic, partition))
    axes.step(rows["time"], rows["committed_offset"], where="post", marker="o")
    for time in rows["time"][rows["is_tombstone"]]:
        axes.axvline(time, color="tab:red", linestyle=":")
    axes.margins(y=0.3)
    axes.locator_params(axis="y", nbins=2)
    axes.set_ylabel(f"{topic}-{partition}", rotation=0, ha="right", va="center", labelpad=12)
figure.suptitle(f"Committed offsets of {group}")
grid[-1, 0].xaxis.set_major_formatter(mdates.ConciseDateFormatter(mdates.AutoDateLocator()))
grid[-1, 0].set_xlabel("time (UTC)")
figure.tight_layout()
plt.show()

# %% [markdown]
# A line that falls is a group that went back, a dotted line is a tombstone. Each partition has its own scale; the twelve with most records
# are shown.

# %% [markdown]
# ## What does the group have now, and what will it lose?

# %%
state = replay(of_groups(records, group))
newest = records.agg(F.max("record_timestamp_ms")).first()[0]
leaves = expire(state, retention="7d", as_of=newest)
left = leaves.offsets.select("topic", "partition", "expires_at", "expired", "rule", "blocked_by").orderBy("topic", "partition")
left.toPandas()

# %% [markdown]
# No row means that nothing of the group is left; `expires_at` is the first moment at which a cleanup removes the offset.
