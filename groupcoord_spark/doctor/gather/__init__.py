"""Gathers the facts of one offsets partition in one pass over the chunks of its log.

Every step works on the columns of a chunk, or once on each distinct key. What is kept from chunk to chunk grows with distinct keys, groups
and producers, and with the records of open transactions, not with records.
"""
