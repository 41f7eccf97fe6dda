"""The page in a real browser, from a file."""

import pytest

from qwen3_rl.cli import main
from tests.report import chromium
from tests.report.run_logs import log

pytest.importorskip("matplotlib", reason="needs build_project.sh --target cpu")

HOSTILE = '<img src=x onerror=alert(1)></script><script>console.error("in")</script>'
RUNS = ["base", HOSTILE, "a run with quite a long name, as they are given to experiments", "$x_1$ & <b>", "5", "_6"]


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """A report of six runs."""
    folder = tmp_path_factory.mktemp("report")
    paths = []
    for index in range(len(RUNS)):
        path = folder / f"{index}.log"
        path.write_text(log(range(1, 31), pace=1 + index / 4, seed=index))
        paths.append(str(path))
    assert main(["compare", *paths, *(f"--label={name}" for name in RUNS), "--out", str(folder)]) == 0
    return folder / "report.html"


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    binary = chromium.find()
    if not binary:
        pytest.skip(f"none of {', '.join(chromium.NAMES)} on PATH; on Debian: apt-get install chromium")
    browser = chromium.Browser(binary, tmp_path_factory.mktemp("profile"))
    yield browser
    browser.close()


@pytest.mark.parametrize(("width", "height"), [(1400, 900), (390, 844)])
def test_the_page_stands_alone_and_fits(page, browser, width, height, tmp_path):
    browser.open(page.as_uri(), width, height)
    assert browser.errors() == []
    assert [url for url in browser.requests() if not url.startswith("data:")] == [page.as_uri()]
    assert browser.evaluate("document.documentElement.scrollWidth") <= width
    shown = "[...document.querySelectorAll('.charts path.smooth')].filter(p => p.getBoundingClientRect().width > 50)"
    charts = browser.evaluate("document.querySelectorAll('.charts figure').length")
    assert charts == 10
    assert browser.evaluate(f"{shown}.length") == charts * len(RUNS)
    # Text of a chart as drawn on the screen, in CSS pixels.
    assert browser.evaluate("document.querySelector('.charts text').getBoundingClientRect().height") >= 9
    browser.screenshot(tmp_path / "page.png")
    assert (tmp_path / "page.png").stat().st_size > 50_000


def test_a_name_is_shown_as_it_is(page, browser):
    browser.open(page.as_uri(), 1400, 900)
    names = browser.evaluate("[...document.querySelectorAll('.controls .name')].map(e => e.textContent)")
    assert names == RUNS
    assert browser.evaluate("document.querySelectorAll('img').length") == 0
    assert browser.evaluate("document.querySelectorAll('script').length") == 2


def test_runs_can_be_hidden_and_values_read_off(page, browser):
    browser.open(page.as_uri(), 1400, 900)
    visible = "getComputedStyle(document.querySelector('.charts path.smooth.run1')).display"
    assert browser.evaluate(visible) == "inline"
    browser.evaluate("document.querySelector('[data-run=\"1\"]').click()")
    assert browser.evaluate(visible) == "none"
    browser.evaluate("document.getElementById('raw').click()")
    assert browser.evaluate("getComputedStyle(document.querySelector('.charts path.raw')).display") == "none"
    browser.evaluate("""{
        const svg = document.querySelector('.charts svg'), box = svg.getBoundingClientRect();
        svg.dispatchEvent(new PointerEvent('pointermove', {clientX: box.right - 1, clientY: box.top + 5}));
    }""")
    assert browser.evaluate("document.querySelector('.readout').textContent").startswith("step 30: base 0.")


def test_a_script_that_fails_would_be_seen(page, browser, tmp_path):
    broken = tmp_path / "broken.html"
    text = page.read_text().replace("JSON.parse(", "JSON.parse('x' + ")
    broken.write_text(text.replace("img-src data:", "img-src *").replace("<h1>", '<img src="http://127.0.0.1:9/"><h1>'))
    browser.open(broken.as_uri(), 1400, 900)
    assert browser.errors() != []
    assert "http://127.0.0.1:9/" in browser.requests()
