# ---
# # ruff: noqa: E402, B018
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
# Ten questions to a warehouse that `groupcoord nightly` wrote. `make nightly` makes the one that is asked here.

# %% tags=["parameters"]
WAREHOUSE = None  # a path or URI; None: GROUPCOORD_WAREHOUSE, else the nearest directory "warehouse", here or above
CLUSTER = "sample"

# %%
import json

import matplotlib.pyplot as plt
import pandas as pd

from groupcoord_spark.warehouse import find_warehouse, open_warehouse

pd.set_option("display.max_colwidth", 48)
warehouse = open_warehouse(WAREHOUSE or find_warehouse())
run = warehouse.run(CLUSTER)
as_of = pd.Timestamp(run.as_of_ms, unit="ms", tz="UTC")


def rows(table, *columns, where=()):
    """Rows of this cluster, as of its newest run."""
    return warehouse.read(table, cluster=CLUSTER, columns=columns or None, where=where).to_pandas()


# %% [markdown]
# ## Which groups are there, and in which state?

# %%
groups = rows("groups", "group_id", "group_type", "state", "is_simple", "protocol", "generation", "member_count", "offset_count")
groups.sort_values("group_id")

# %% [markdown]
# A classic group is Stable when it has members and Empty when it has none; a simple group has offsets and nothing else.

# %% [markdown]
# ## Where does each group stand?

# %%
offsets = rows("committed_offsets", "group_id", "topic", "partition", "committed_offset", "commit_timestamp")
offsets.groupby(["group_id", "topic"]).agg(
    partitions=("partition", "size"),
    lowest=("committed_offset", "min"),
    highest=("committed_offset", "max"),
    newest=("commit_timestamp", "max"),
)

# %% [markdown]
# `committed_offset` is the next record that the group will read; how far behind it is cannot be told without the topics' end offsets.

# %% [markdown]
# ## Who holds which partition?

# %%
held = rows("assignments", "group_id", "member_id", "topic", "partition", where=[("kind", "=", "current")])
members = rows("members", "group_id", "member_id", "client_id", "instance_id", "client_host")
readers = held.merge(members, on=["group_id", "member_id"], how="left")
readers.groupby(["group_id", "client_id", "topic"])["partition"].agg(lambda numbers: ", ".join(map(str, sorted(numbers)))).to_frame()

# %% [markdown]
# A member without a row here is in the group and was given nothing.

# %% [markdown]
# ## What expires within a week, and why?

# %%
expirations = rows("offset_expirations", "group_id", "topic", "partition", "base_timestamp", "expires_at", "expired", "rule", "blocked_by")
soon = expirations[expirations["expires_at"] < as_of + pd.Timedelta(days=7)].sort_values("expires_at")
soon.groupby(["group_id", "topic", "rule", "expired"]).agg(partitions=("partition", "size"), first=("expires_at", "min"))

# %% [markdown]
# `X-B0` is an expiry that the client asked for, `X-B1` counts from the moment the group became Empty, `X-B2` (simple groups) and
# `X-B3` (topics no longer subscribed) count from the commit.

# %%
figure, axes = plt.subplots(figsize=(8, 3))
hours_left = (soon["expires_at"] - as_of).dt.total_seconds() / 3600
axes.hist(hours_left.clip(lower=-12), bins=range(-12, 169, 6))
axes.set(title=f"Offsets of {CLUSTER} that expire within a week", xlabel=f"hours after {as_of:%Y-%m-%d %H:%M} UTC", ylabel="offsets")
figure.tight_layout()
plt.show()

# %% [markdown]
# Whatever stands left of 0 has expired already: the broker's next cleanup removes it.

# %% [markdown]
# ## What is protected, and why?

# %%
kept = expirations[expirations["expires_at"].isna()]
kept.groupby(["rule", "blocked_by"]).agg(offsets=("partition", "size"), groups=("group_id", "nunique"))

# %% [markdown]
# `subscribed` holds as long as the group is live and subscribes to the topic, however long ago the commit was.

# %% [markdown]
# ## What was committed in each hour?
#
# The same tables in SQL, by DuckDB, with the view that joins each commit with the end of its transaction.

# %%
import duckdb

from groupcoord_spark.warehouse.views import VIEWS

night = duckdb.connect()
for table in ("offset_commits", "transactions"):
    night.register(table, warehouse.read(table, cluster=CLUSTER))
night.execute(f"CREATE VIEW offset_commits_resolved AS {VIEWS['offset_commits_resolved']}")
answer = night.sql("""
    SELECT date_trunc('hour', commit_timestamp) AS hour, COALESCE(transaction_result, 'no transaction') AS ended,
           COUNT(*) AS commits, COUNT(DISTINCT group_id) AS committing_groups
    FROM offset_commits_resolved
    WHERE NOT is_tombstone
    GROUP BY ALL
    ORDER BY hour, ended
""")
commits = answer.to_arrow_table().to_pandas()
commits

# %% [markdown]
# These are the commits that the log still holds: where it was compacted the figures are lower bounds.

# %% [markdown]
# ## What could not be read, and what was doubtful?

# %%
lost = rows("quarantined_records", "run_id", "source", "position", "reason", "detail", "records")
doubts = rows("warnings", "run_id", "offsets_partition", "group_id", "code", "detail")
lost[lost["run_id"] == run.run_id], doubts[doubts["run_id"] == run.run_id]

# %%
partitions = rows("offsets_partitions", "offsets_partition", "first_offset", "end_offset", "records", "decoded", "quarantined", "live_keys")
assert (partitions["records"] == partitions["decoded"] + partitions["quarantined"]).all()
partitions.sort_values("offsets_partition")

# %% [markdown]
# Two empty tables mean that every byte was read without a doubt; records read = decoded + quarantined in any case.

# %% [markdown]
# ## How did the groups rebalance?

# %%
columns = ("group_id", "record_offset", "record_timestamp", "value_json")
records = rows("group_records", *columns, where=[("key_name", "=", "GroupMetadataKey")])
values = records["value_json"].map(lambda text: json.loads(text) if isinstance(text, str) else {})
generations = records.assign(
    generation=values.map(lambda value: value.get("generation")),
    assignor=values.map(lambda value: value.get("protocol")),
    members=values.map(lambda value: len(value["members"]) if "members" in value else None),
)
generations.drop(columns="value_json").sort_values(["group_id", "record_offset"])

# %% [markdown]
# Each row is the group as the broker wrote it: when a generation was complete, when the group became Empty, or (no generation) when it
# was deleted. Rebalances that were not completed are not in the log.

# %% [markdown]
# ## What would the next cleanup write?

# %%
tombstones = rows("tombstones", "offsets_partition", "sequence", "group_id", "key_type", "topic", "partition", "reason")
tombstones.sort_values(["offsets_partition", "sequence"])

# %% [markdown]
# `offset_expired` takes one offset away, `group_removed` a group that is Empty and has no offset left.

# %% [markdown]
# ## Which nights are there, and how do I read exactly one?

# %%
nights = warehouse.runs(CLUSTER).select(["run_id", "as_of", "finished_at", "semantics", "broker_version", "records_read"]).to_pandas()
nights

# %%
one_night = warehouse.read("groups", cluster=CLUSTER, at_ms=run.as_of_ms)
one_night.num_rows, run.table_versions["groups"]

# %% [markdown]
# A run names the version of every table it left behind, so that night reads the same for as long as those versions are kept.
