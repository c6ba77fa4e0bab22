"""For teachers: `notes` reads the notes in the notebooks, and `plan` plans courses from them."""
