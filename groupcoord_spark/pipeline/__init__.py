"""The stages of a nightly run, and how they go through Spark.

``plan`` decides which records are read, and by which task. ``read`` is one worker's pass over its files: decode, drop superseded records,
count, write the history files. ``replay`` turns the records of one offsets partition into rows of the state tables. ``exchange`` defines
the rows that travel between these stages. ``run.run_stages`` runs the stages in order and commits the result.
"""
