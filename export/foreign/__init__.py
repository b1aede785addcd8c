"""The import of foreign ONNX graphs: a child process reads, wraps and tries them, this process publishes (ADR 26)."""
