"""Read what was handed in, as text: nothing runs here, and everything that was lost or repaired is reported."""
