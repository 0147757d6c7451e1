"""Decisions before the first record is read: what earlier runs have read, how many partitions the offsets topic has, which large segments
are read in ranges, and where each offsets partition ends at an earlier moment.
"""
