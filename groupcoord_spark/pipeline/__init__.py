"""How many records go through Spark, stage by stage: ``plan`` what to read and who reads it, ``read`` a worker's pass over its files,
``replay`` one offsets partition, ``exchange`` the rows between these stages. ``nightly.run_nightly`` puts the stages in order.
"""
