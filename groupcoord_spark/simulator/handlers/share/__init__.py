"""Requests of share groups (KIP-932)."""
