"""Call an answer within limits, and compare its result with the expected one. Nothing here depends on a page."""
