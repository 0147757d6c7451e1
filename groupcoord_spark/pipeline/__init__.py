"""The stages of a nightly run, and how they go through Spark.

``plan`` decides which records are read, and by which task. ``read`` is one worker's pass over its files: decode, drop what later records
supersede, count, write the history files. ``replay`` turns the records of one offsets partition into rows of the state tables. ``exchange``
has the rows that travel between these stages. ``night.run_nightly`` runs the stages in order and commits the result.
"""
