"""What other programs compute, as they compute it."""
