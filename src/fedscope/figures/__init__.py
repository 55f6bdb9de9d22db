"""Static figures and tables for papers: pure drawing, from frozen records to files."""
