"""The five papers: printed numbers, claims, readings, and the studies that regenerate them."""
