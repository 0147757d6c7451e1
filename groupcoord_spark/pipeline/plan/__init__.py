"""What a run reads and who reads it: how far earlier runs came, how many partitions the topic has, large files in ranges, and where each
offsets partition ends at an earlier moment.
"""
