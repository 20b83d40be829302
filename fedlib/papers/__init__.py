"""The papers: what they print and claim, what that needs, and what has been measured of it."""
