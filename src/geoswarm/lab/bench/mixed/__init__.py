"""Mixed: Parallel Stream Processing Against Workload Skewness and Variance."""
