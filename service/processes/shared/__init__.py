"""What front ends and engine processes share: messages, slots, the status board."""
