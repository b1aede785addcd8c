"""Where results are kept for good: a local disk or S3."""
