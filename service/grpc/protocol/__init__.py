"""The messages: our own .proto file of the public protocol, and what protoc generated from it."""
