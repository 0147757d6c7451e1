"""What the coordinator does with each request. Files in this folder serve groups of every kind, the rooms below one protocol each."""
