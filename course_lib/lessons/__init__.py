"""What a teacher needs beside the chapters: notes in the notebooks, and the courses that are planned from them."""
