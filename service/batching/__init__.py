"""The queue of samples, the worker thread that owns the device, and the backend that keeps both alive."""
