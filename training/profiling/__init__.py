"""Profiles training steps: operators, power, and how close they come to the device's limits."""
