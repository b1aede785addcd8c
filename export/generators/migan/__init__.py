"""MI-GAN."""
