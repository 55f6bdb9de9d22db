"""A method as a record: what it adds to the local loop and to the server."""
