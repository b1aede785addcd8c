"""`retouch bench pipeline`: the pipeline measured in this process, without HTTP."""
