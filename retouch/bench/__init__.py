"""`retouch bench`: load on a running server, and a report of latency, throughput and errors."""
