"""A worker's pass over its files: decode the records, drop what a later record supersedes, count, and write the history files."""
