"""The names of the records' schemas."""

HESSIAN_SCHEMA = "fedscope/hessian/1"
LANDSCAPE_SCHEMA = "fedscope/landscape/1"
