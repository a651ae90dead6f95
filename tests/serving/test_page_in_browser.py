"""The page of the server and the report in headless Chromium."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from shared.command_line import TEST_TEXT, TEXT, run
from shared.processes import wait_for

webdriver = pytest.importorskip("selenium.webdriver")
uvicorn = pytest.importorskip("uvicorn")
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update",
    "--disable-sync", "--no-first-run", "--window-size=1000,900",
)  # fmt: skip


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    chromium, driver = (
        shutil.which(name) or pytest.skip(f"{name} is not installed") for name in ("chromium", "chromedriver")
    )
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('browser')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    found = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    yield found
    found.quit()


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory):
    folder = tmp_path_factory.mktemp("served") / "m"
    run("train", TEXT, "--out", folder)
    return folder


@pytest.fixture(scope="module")
def address(model) -> Iterator[str]:
    from xmlsgd import XMLClassifier
    from xmlsgd.serving.app import new_app
    from xmlsgd.serving.service import ServedModel, Service

    app = new_app(Service(ServedModel(XMLClassifier.load(model)), "m"))
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="warning"))
    thread = threading.Thread(target=server.run)
    thread.start()
    wait_for(lambda: server.started)
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    server.should_exit = True
    thread.join()


def text_of(browser, name):
    return browser.find_element("id", name).text


def test_a_text_gets_labels_words_terms_and_rows_and_the_threshold_hides_labels(browser, address):
    browser.get(address)
    assert not browser.find_element("id", "why").is_displayed()
    browser.find_element("id", "input").send_keys("open a file and read all lines, close the stream")
    wait_for(lambda: text_of(browser, "labels"))
    labels = browser.find_elements("class name", "label")
    assert text_of(browser, "terms").startswith("network")
    assert text_of(browser, "rows").startswith("row ")
    assert browser.find_elements("tag name", "mark")
    second = labels[1].text
    labels[1].click()
    (chosen,) = (
        each for each in browser.find_elements("class name", "label") if each.get_attribute("aria-pressed") == "true"
    )
    assert chosen.text == second
    browser.execute_script("threshold.value = 0.99; threshold.oninput()")
    assert text_of(browser, "shown") == "0.99"
    assert len(browser.find_elements("class name", "label")) == 0
    assert text_of(browser, "none").startswith("No label reaches the threshold; the best has 0.")
    assert text_of(browser, "terms") == ""
    browser.find_element("id", "input").clear()
    browser.find_element("id", "input").send_keys("qqqq")
    wait_for(lambda: text_of(browser, "state") == "The model knows no word of the text.")
    assert text_of(browser, "none") == ""
    assert browser.get_log("browser") == []


def test_a_label_that_is_chosen_by_the_keyboard_keeps_the_focus(browser, address):
    browser.get(address)
    browser.find_element("id", "input").send_keys("open a file and read all lines, close the stream")
    wait_for(lambda: text_of(browser, "labels"))
    browser.find_elements("class name", "label")[1].send_keys("\n")
    assert browser.switch_to.active_element == browser.find_elements("class name", "label")[1]
    assert browser.switch_to.active_element.get_attribute("aria-pressed") == "true"


def test_the_page_says_that_the_server_does_not_answer(browser, address):
    browser.get(address)
    browser.execute_script("window.fetch = () => Promise.reject(new TypeError('Failed to fetch'))")
    browser.find_element("id", "input").send_keys("open a file")
    wait_for(lambda: text_of(browser, "state") == "No answer: Failed to fetch. Is the server running?")


@pytest.fixture
def report(browser, model, tmp_path) -> Iterator[None]:
    """Open a report as on a telephone that prefers dark pages."""
    run("report", model, TEST_TEXT, "--out", tmp_path / "r.html")
    screen = {"width": 360, "height": 800, "deviceScaleFactor": 1, "mobile": True}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
    dark = {"features": [{"name": "prefers-color-scheme", "value": "dark"}]}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", dark)
    browser.get((tmp_path / "r.html").as_uri())
    yield
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_the_report_opens_without_errors_and_fits_a_telephone(browser, report):
    headings = [each.text for each in browser.find_elements("tag name", "h2")]
    assert {"Metrics, in percent", "Calibration", "Wrong first labels of the highest probability"} <= set(headings)
    assert browser.execute_script("return document.documentElement.scrollWidth") == 360
    for diagram in browser.find_elements("tag name", "svg"):
        assert all(tick.rect["x"] + tick.rect["width"] <= 344 for tick in diagram.find_elements("tag name", "text"))
    assert browser.get_log("browser") == []


def test_the_report_has_light_letters_where_the_browser_prefers_dark_pages(browser, report):
    for name, style in (("h1", "color"), ("td", "color"), ("pre", "color"), ("text", "fill")):
        assert "(255, 255, 255" in browser.find_element("tag name", name).value_of_css_property(style)
