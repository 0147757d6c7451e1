"""The rows between the stages: each schema once, and one way to pack and unpack them."""
