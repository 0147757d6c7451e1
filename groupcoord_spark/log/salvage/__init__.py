"""What exists only for damaged files: finding sound entries between broken ones, and putting entries in their order."""
