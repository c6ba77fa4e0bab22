"""The web edition: the notebooks as pages of a static site that needs no kernel and no other server.

`build` runs the entire build. `pages` writes the input of Sphinx, `states` draws the figures with sliders, and `links`
checks the built site. Sphinx's configuration, the styles and the script are in the repository's folder `web/`.
"""
