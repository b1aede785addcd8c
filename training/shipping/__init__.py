"""Publishes trained weights as a model, with a card of data, figures and known failures."""
