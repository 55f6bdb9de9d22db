"""What runs each program: ``run(problem, entry)`` returns the global model after every round."""
