"""The interactive documentation and the OpenAPI document as a client gets them."""
