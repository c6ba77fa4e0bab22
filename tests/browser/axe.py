"""axe-core, the checker of accessible pages, over a page that is open.

    python -m tests.browser.axe [--site build/site] [--within SELECTOR] [PAGE.html ...]

looks at every page of the built web edition, or at the pages named: wide and narrow, light and dark. A line per serious
or critical finding, with the first elements that show it; ends with 1 if there is any.
"""

import argparse
import sys
from functools import cache
from importlib.resources import files
from pathlib import Path

from tests.browser.lab import chromium
from tests.site_in_browser import served

OURS = ".jp-OutputArea-output"  # of a page of JupyterLab: what cells have shown
GRAVE = ("serious", "critical")
VIEWS = [(width, scheme) for width in (1280, 390) for scheme in ("light", "dark")]
RUN = """async ([within, grave]) => {
    for (const folded of document.querySelectorAll("details")) folded.open = true;
    if (within && !document.querySelector(within)) return [];
    const {violations} = await axe.run(within ? {include: [within]} : document, {resultTypes: ["violations"]});
    return violations.filter(({impact}) => grave.includes(impact)).map(({id, impact, help, nodes}) =>
        `${id} (${impact}, ${nodes.length} times): ${help}: ` + nodes.slice(0, 3).map(({html, any}) =>
            `${html.slice(0, 160)} ${any.map(({message}) => message).join("; ").slice(0, 160)}`).join(" | "));
}"""


@cache
def source() -> str:
    """axe-core's own script."""
    return (files("axe_playwright_python") / "axe.min.js").read_text(encoding="utf-8")


def findings(page, within: str = "") -> list[str]:
    """A sentence for each serious or critical finding in a page, or in what a selector picks of it."""
    if not page.evaluate("!!window.axe"):
        page.evaluate(source())
    return page.evaluate(RUN, [within, GRAVE])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--site", type=Path, default=Path("build/site"))
    parser.add_argument("--within", default="", help="look only at what this CSS selector picks")
    parser.add_argument("pages", nargs="*", type=Path)
    arguments = parser.parse_args()
    from playwright.sync_api import sync_playwright

    site = Path(arguments.pages[0]).parent if arguments.pages else arguments.site
    names = sorted(path.relative_to(site).as_posix() for path in arguments.pages or site.rglob("*.html"))
    told = []
    with served(site) as address, sync_playwright() as play:
        browser = play.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
        for width, scheme in VIEWS:
            page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
            page.route(lambda url, address=address: not url.startswith(address), lambda route: route.abort())
            for name in names:
                page.goto(address + name)
                page.evaluate("() => window.MathJax?.startup?.promise.then(() => null)")
                told += [f"{name} ({width}, {scheme}): {each}" for each in findings(page, arguments.within)]
            page.close()
        browser.close()
    print(*told, f"{len(names)} pages, {len(VIEWS)} views, {len(told)} serious or critical findings", sep="\n")
    return 1 if told else 0


if __name__ == "__main__":
    sys.exit(main())
