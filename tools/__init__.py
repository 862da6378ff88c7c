"""What maintainers run to keep the repository in step with itself."""
