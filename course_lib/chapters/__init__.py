"""The code of the chapters, with a folder for each: claims, figures, live figures, exercises. `course.contents` lists
them."""
