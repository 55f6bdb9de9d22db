"""Symmetric operators known by their products: the Hessian and its relatives."""
