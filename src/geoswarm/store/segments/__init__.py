"""Segments: immutable sets of subscriptions on disk, in two flat files each that any worker maps."""
