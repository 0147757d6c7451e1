"""Files that a broker keeps next to the segments of its partitions."""
