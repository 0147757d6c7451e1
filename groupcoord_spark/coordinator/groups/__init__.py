"""The groups of one offsets partition, by type: what each record of a group changes, and which records the broker refuses."""
