"""Options of `train`: gradients in 16 bits or compiled, several processes, and checkpoints from which a run resumes."""
