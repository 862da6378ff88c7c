"""Log lines and plain HTTP, for the processes that the image runs."""
