"""Everything that exists only for damaged files: ``finder`` finds sound entries between broken ones, ``order`` puts entries in order."""
