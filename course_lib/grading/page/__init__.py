"""From a page to an exercise: its format, its reader, the catalogue of all pages, and the notebooks made from them."""
