"""How much curvature differs between clients."""
