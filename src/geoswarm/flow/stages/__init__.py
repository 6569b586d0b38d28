"""The bodies of the stages: what one task does with its batches. `run/` decides where tasks run."""
