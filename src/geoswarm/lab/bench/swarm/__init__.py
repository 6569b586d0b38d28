"""SWARM: Adaptive Load Balancing in Distributed Streaming Systems for Big Spatial Data."""
