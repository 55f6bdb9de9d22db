"""The one cache of results: where they are kept, and which of them answers a request."""
