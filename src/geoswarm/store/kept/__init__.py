"""Kept events on disk: what was committed, for queries about the past, and nothing that was not.

`files.py` has the files and the sealed documents that name them, `keeper.py` seals a batch and forgets old ones,
`merge.py` makes few large files of many small ones, `reading.py` opens what a query needs. `flow/keep.py` makes the
arrays of a file, `flow/recall.py` finds events in them. SWARM §5.2.
"""
