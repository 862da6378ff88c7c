"""The API server: one client for single objects and for pages."""
