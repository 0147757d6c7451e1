"""Where files lie and how they are read side by side: local paths, object stores, and files held open while a broker replaces them.

``Location`` and ``WarehouseLocation`` are a path or URI with the file system that has it. ``side_by_side`` reads many files at the same
time where reading waits for the store. Nothing here knows what the files contain.
"""
