"""The queue before the engine, the worker that owns the device, and the backend that keeps them alive."""
