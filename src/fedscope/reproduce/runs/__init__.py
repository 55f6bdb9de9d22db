"""The runs that a recipe needs: which the registry has, and how the others are trained and measured."""
