"""The rows that travel between the stages: each schema once, and one way to pack and unpack columns."""
