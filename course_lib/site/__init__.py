"""The web edition: the notebooks as pages of a static site that needs no kernel and no other server.

`build` runs the entire build. `pages` writes the input of Sphinx, `states` draws the figures with sliders, and `links`
checks the built site. `sharing` adds descriptions, previews, the sitemap and the feed; `cards` draws the previews'
pictures, and `about` has the addresses that `[project.urls]` gives. Sphinx's configuration, the styles, the script and
the template of a page are in the repository's folder `web/`.
"""
