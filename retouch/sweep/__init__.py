"""The choice of a model's rules for strategy `auto`, from candidates measured on a folder of pictures."""
