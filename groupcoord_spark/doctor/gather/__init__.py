"""Gathers the facts of one offsets partition in one pass over the chunks of its log.

Every step works on the columns of a chunk, or once on each distinct key. State kept between chunks grows with distinct keys, groups,
producers and records of open transactions, not with the number of records.
"""
