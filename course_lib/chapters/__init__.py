"""What teaches, a folder for each chapter: claims, figures, live figures, exercises. `contents` lists the chapters."""
