"""What a table or figure of a paper is made of: runs, measures, quantities, and the numbers it printed."""
