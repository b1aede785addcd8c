"""What is told of the work: metrics, traces, logs."""
