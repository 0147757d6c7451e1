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
# # What would a shorter retention of offsets remove?
#
# The expiration rules of the broker under two retentions, side by side. Only Spark is needed, no warehouse.

# %% tags=["parameters"]
LOGS = "../tests/golden/classic-modern/logs"  # a broker's log directory, or a URI of one
PRESENT, OTHER = "7d", "1d"  # offsets.retention now, and the one to try
DAYS_LATER = 2  # days from the newest record to the cleanup

# %%
import matplotlib.pyplot as plt
from pyspark.sql import functions as F

from groupcoord_spark.dataframes import decode, expire, register, replay
from groupcoord_spark.spark.session import session

spark = session()
register(spark)
# Any frame with key, value, partition and offset will do, for example spark.table("bronze.consumer_offsets").
raw = spark.read.format("consumer_offsets").load(LOGS)

# %% [markdown]
# ## How many offsets and groups does each retention remove?

# %%
DAY_MS = 86_400_000
state = replay(raw)
as_of = decode(raw).agg(F.max("record_timestamp_ms")).first()[0] + DAYS_LATER * DAY_MS
by_retention = {retention: expire(state, retention=retention, as_of=as_of) for retention in (PRESENT, OTHER)}
removed = spark.createDataFrame(
    [
        (retention, leaves.offsets.where("expired").count(), leaves.groups.where("removed").count(), leaves.tombstones.count())
        for retention, leaves in by_retention.items()
    ],
    "retention STRING, offsets BIGINT, groups BIGINT, records_to_write BIGINT",
)
counts = removed.toPandas()
counts

# %% [markdown]
# `records_to_write` is the number of tombstones that the cleanup would append to `__consumer_offsets`.

# %% [markdown]
# ## Which offsets go only under the other retention?

# %%
place = ["cluster", "group_id", "topic", "partition"]
present, other = (by_retention[retention].offsets.where("expired") for retention in (PRESENT, OTHER))
lost = other.join(present, on=place, how="left_anti").select(*place, "base_timestamp", "expires_at", "rule").orderBy(*place)
lost.toPandas()

# %% [markdown]
# `base_timestamp` is the moment from which the offset ages, by the rule in the last column.

# %% [markdown]
# ## When do the offsets leave?

# %%
figure, axes = plt.subplots(figsize=(8, 3))
for retention, leaves in by_retention.items():
    hours = leaves.offsets.where("expires_at IS NOT NULL").select((F.unix_millis("expires_at") - as_of) / 3_600_000).toPandas()
    axes.hist(hours.iloc[:, 0], bins=range(-72, 169, 6), alpha=0.6, label=retention)
axes.set(title="Offsets by the moment they expire", xlabel="hours after the cleanup", ylabel="offsets")
axes.legend()
figure.tight_layout()
plt.show()

# %% [markdown]
# Whatever stands left of 0 is removed by the cleanup itself. Offsets of groups that still read do not appear: they do not expire.
