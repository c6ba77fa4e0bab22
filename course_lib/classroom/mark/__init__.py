"""Mark one submission or a full class, on one machine or several; apply points, weights and lateness."""
