"""Log lines, and metrics and health over plain HTTP, for the processes that the image runs."""
