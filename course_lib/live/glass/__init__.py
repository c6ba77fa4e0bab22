"""The glass model: a small decoder that runs in the page itself, every intermediate of it open to the eye.

`engine.js` computes, without a kernel; `pack` hands a model of the library to it.
"""
