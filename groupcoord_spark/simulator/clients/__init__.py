"""Simulated consumers of the Java client, classic and of the new protocol: what they send, when, and what they make of each answer."""
