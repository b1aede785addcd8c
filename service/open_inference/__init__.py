"""The Open Inference Protocol v2 without a transport: tensors, options, descriptions; HTTP and gRPC are built on it."""
