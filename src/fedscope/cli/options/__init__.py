"""What commands take: their class, the options that several share, and what has no effect."""
