"""The operations by which a network is evaluated, and differentiated once or twice."""
