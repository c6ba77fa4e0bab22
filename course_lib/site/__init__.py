"""The web edition: the notebooks as pages of a static site, without a kernel and without any other server.

`pages` writes what Sphinx reads, `states` draws the figures that a slider walks through, `links` checks what was built.
The builder's configuration, the styles and the script stand in the folder `web/` of the repository.
"""
