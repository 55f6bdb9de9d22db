"""Ways of computing products that need no second derivative, and what they cost in precision."""
