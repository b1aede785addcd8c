"""The import of ONNX graphs of others: a child process reads, wraps and tries them, this process publishes (ADR 26)."""
