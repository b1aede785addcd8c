"""The Open Inference Protocol v2 over gRPC: a server of its own beside that of HTTP, on the same pipeline (ADR 30)."""
