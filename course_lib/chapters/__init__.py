"""What teaches, a folder for each chapter: claims, figures, live figures, exercises. `course.contents` lists them."""
