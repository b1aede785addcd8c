"""The choice of a model's rules for strategy `auto`, from ways to fill measured on a folder of pictures."""
