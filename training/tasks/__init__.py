"""The kinds of models that can be trained, one file each."""
