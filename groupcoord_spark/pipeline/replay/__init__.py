"""The replay of an offsets partition: kept records -> rows of the state tables -> Parquet files."""
