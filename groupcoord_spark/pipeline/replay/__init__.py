"""One offsets partition: from its kept records to the rows of the state tables, and from those rows to files."""
