"""What follows from the rules of the coordinator: which commits counted, who owned a partition, why an offset went, who wrote the records.

The room reads tables without Spark, so that the commands that ask these questions start in a second.
"""
