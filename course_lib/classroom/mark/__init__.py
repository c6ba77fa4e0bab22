"""Mark a class: one submission, all of them, on one machine or several; points, weights and lateness."""
