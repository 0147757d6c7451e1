"""What the tables of a warehouse answer when the coordinator's rules are applied to them once more: which commits counted, who owned a
partition then, why an offset was removed. No Spark: the commands that ask start in a second.
"""
