"""What a night over segments finds in the log directories beside ``__consumer_offsets``."""
