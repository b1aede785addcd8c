"""The part of AUTOMATIC1111's API (`/sdapi/v1`) that its clients need to fill a mask."""
