"""Read submissions as text. Nothing is run here, and everything lost or repaired is reported."""
