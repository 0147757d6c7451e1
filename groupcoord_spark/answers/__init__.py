"""Answers from the history tables by the coordinator's rules: which commits counted, who owned a partition, why an offset was removed.

The room reads tables without Spark, so that the commands that ask these questions start in a second.
"""
