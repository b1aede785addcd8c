"""The Open Inference Protocol v2, independent of the transport: tensors, options and model descriptions."""
