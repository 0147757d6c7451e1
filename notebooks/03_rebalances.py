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
# # Which groups rebalance too often, and why?
#
# Every generation and every epoch of every group, with the members that came and went. Only Spark is needed, no warehouse.

# %% tags=["parameters"]
LOGS = "../tests/golden/classic-modern/logs"  # a broker's log directory, or a URI of one

# %%
import matplotlib.pyplot as plt
from pyspark.sql import functions as F

from groupcoord_spark.dataframes import rebalances, register
from groupcoord_spark.spark.session import session

spark = session()
register(spark)
# Any frame with key, value, partition and offset will do, for example spark.table("bronze.consumer_offsets").
raw = spark.read.format("consumer_offsets").load(LOGS)

# %% [markdown]
# ## Who rebalanced most?

# %%
changes = rebalances(raw).cache()
counted = changes.where("kind <> 'assignment'").groupBy("group_id", "group_type").agg(
    F.count("*").alias("rebalances"),
    F.sum("joined_count").alias("joined"),
    F.sum("left_count").alias("left"),
    F.sum("partitions_moved").alias("partitions_moved"),
    F.min("since_previous_ms").alias("shortest_ms"),
)
most = counted.orderBy(F.desc("rebalances"), "group_id").toPandas()
most

# %% [markdown]
# The log keeps the last record of each group and what compaction has not reached yet, so these are lower bounds.

# %% [markdown]
# ## What caused the rebalances?

# %%
causes = changes.groupBy("cause", "confidence").agg(F.count("*").alias("rebalances")).orderBy(F.desc("rebalances"), "cause").toPandas()
figure, axes = plt.subplots(figsize=(8, 3))
axes.barh(causes["cause"] + " (" + causes["confidence"].fillna("-") + ")", causes["rebalances"])
axes.invert_yaxis()
axes.set(title="Rebalances by cause", xlabel="rebalances")
figure.tight_layout()
plt.show()

# %% [markdown]
# `unknown` is a rebalance whose cause no record shows, most often the first one of a group that the log still has.

# %% [markdown]
# ## What does the evidence say?

# %%
changes.select("record_timestamp", "group_id", "from_generation", "to_generation", "cause", "evidence").orderBy(
    "group_id", "record_offset"
).toPandas()

# %% [markdown]
# Each sentence names the records from which the cause was inferred.
