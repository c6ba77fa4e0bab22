"""Pages of the web edition in windows of every width. `.ci/run` builds it before these tests."""

from pathlib import Path

import pytest

from tests.site_in_browser import served

SITE = Path(__file__).parent.parent.parent / "build" / "site"
WIDTHS = (1600, 1440, 1280, 1200, 1150, 1100, 1072, 1000, 900, 700, 390)  # pixels


@pytest.mark.skipif(not (SITE / "index.html").exists(), reason="`python -m course_lib site` builds it")
@pytest.mark.parametrize("name", ["index.html", "notebooks/01_embeddings.html"])
def test_no_window_is_too_narrow_for_the_page(lab, name):
    """Between the widths at which the theme folds its side columns away, too."""
    page = lab.blank()
    with served(SITE) as address:
        page.goto(address + name)
        beyond = {}
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": 900})
            beyond[width] = page.evaluate("document.documentElement.scrollWidth - innerWidth")
    assert all(pixels <= 0 for pixels in beyond.values()), beyond
