"""Shared by front ends and engine processes: messages, slots and the status board."""
