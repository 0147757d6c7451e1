"""The Spark session of a run, its settings, its directory on disk, what its failures mean in our words, and functions on columns."""
