"""TrioStat: Attack-Resilient Adaptive Load-Balancing in Distributed Spatial Data Streaming Systems (thesis, ch. 6)."""
