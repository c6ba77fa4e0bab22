"""How Sphinx builds the web edition. `python -m course_lib site` writes the pages that it reads, and then calls it."""

project = "Transformers, Measured"
html_title = project
author = project
copyright = "the authors of Transformers, Measured; code: MIT licence, prose and pictures: CC BY 4.0"
language = "en"

extensions = ["myst_nb", "sphinx.ext.mathjax"]
templates_path = ["_templates"]
exclude_patterns = ["_extra", "_templates"]
html_extra_path = ["_extra"]  # pictures, the glass model, MathJax: copied as they are
html_static_path = ["_own"]
html_favicon = "_own/favicon.svg"
html_css_files = ["course.css"]
html_js_files = [("course.js", {"defer": "defer"})]
html_copy_source = False
html_show_sourcelink = False

# The notebooks' committed outputs are shown; nothing is run, and no widget is looked for on another server.
nb_execution_mode = "off"
nb_ipywidgets_js: dict = {}
nb_code_prompt_show = "Guess first; then open the output"
nb_code_prompt_hide = "Hide the output"

myst_enable_extensions = ["dollarmath", "amsmath", "attrs_inline"]
myst_heading_anchors = 4
myst_links_external_new_tab = False

myst_heading_slug_func = "course_lib.site.pages.anchor"
# A notebook begins sections where its story does, so a level may be skipped; code that shows an error has no lexer.
suppress_warnings = ["myst.header", "misc.highlighting_failure"]

html_theme = "furo"
html_theme_options = {"navigation_with_keys": False, "top_of_page_buttons": []}
pygments_style = "a11y-high-contrast-light"
pygments_dark_style = "a11y-high-contrast-dark"

mathjax_path = "../mathjax/tex-chtml-full.js"  # from _static
mathjax3_config = {"options": {"enableMenu": False}}
