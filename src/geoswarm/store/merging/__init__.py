"""Segments are merged beside the stream, in processes of their own; a batch boundary adopts what they have made.

choose.py    which segments are worth rewriting as one
order.py     one merge, as it is given to a process
process.py   such a process, from the engine's side; `merger.py` is its program
lane.py      one merge after the other, in a thread of the engine that waits for the process
merging.py   what the checkpoint calls: begin merges, adopt their segments, wait when there are too many
"""

from geoswarm.store.merging.merging import Merging as Merging
