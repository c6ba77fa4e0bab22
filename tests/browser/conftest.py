"""One JupyterLab and one browser for all tests in a browser."""

import pytest

from tests.browser.lab import CHROMIUMS, chromium, open_lab


@pytest.fixture(scope="session")
def lab(tmp_path_factory):
    """The JupyterLab of this run."""
    pytest.importorskip("playwright.sync_api", reason="the tests in a browser need playwright")
    if chromium() is None:
        pytest.skip(f"the tests in a browser need one of {', '.join(CHROMIUMS)} on the PATH")
    with open_lab(tmp_path_factory.mktemp("browser")) as lab:
        yield lab
