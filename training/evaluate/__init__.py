"""Evaluation: compares a model's results on held-out pictures with the truth and with OpenCV's methods."""
