"""What all requests share: settings, the rules of the release, the log with its appends, offsets partitions, and steps of groups."""
