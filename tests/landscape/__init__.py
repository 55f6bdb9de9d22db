"""Tests of fedscope.landscape."""
