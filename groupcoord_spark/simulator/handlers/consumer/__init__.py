"""Requests of consumer groups (KIP-848), also those that members of the classic protocol send to such a group."""
