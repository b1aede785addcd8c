"""The interactive documentation and the OpenAPI document, as served to clients."""
