"""Jobs: trainings that outlive the client that submitted them."""
