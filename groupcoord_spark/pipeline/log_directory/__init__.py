"""Contents of the log directories other than ``__consumer_offsets``."""
