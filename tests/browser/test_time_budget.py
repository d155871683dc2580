"""The time budget in a real browser: sliders, devices, models, and its counts against those of the package."""

import itertools

import pytest
from figure_pages import contrast, data, page_width

from caracal_book import viz
from caracal_book.numbers.cost import DEVICES
from caracal_book.viz.time_budget import _costs, _times

FIGURE = viz.time_budget("pure", 512, "A100")
NAMES = {"hybrid": "hybrid Caracal", "pure": "pure Caracal", "llama": "Llama"}


def slider(page, name):
    return page.get_by_role("slider", name=name, exact=True)


def bar(page, model):
    return page.get_by_role("button", name=NAMES[model])


def press(page, name):
    page.get_by_role("button", name=name, exact=True).click()


def assert_agrees_with_the_package(shown):
    start = shown["setting"]
    for model, parts in _costs(start).items():
        for part, cost in parts.items():
            assert shown["counts"][model][part] == pytest.approx(cost._asdict(), rel=1e-12)
            told = shown["times"][model][part]
            assert told["time"] == pytest.approx(_times(start)[model][part], rel=1e-12)
            assert told["bound"] == DEVICES[start["device"]].bound(part, cost)


def test_without_scripts_the_still_is_shown(still):
    assert still.get_attribute("alt").startswith("Three bars of the time that the operators of a training step")


def test_first_frame_is_what_was_asked_for(page):
    shown = data(page)
    assert shown["setting"] == {"model": "pure", "length": 512, "device": "A100", "width": 512, "fused": False,
                              "compiled": False}
    assert_agrees_with_the_package(shown)
    assert bar(page, "pure").get_attribute("aria-pressed") == "true"
    assert "pure Caracal: " in page.locator("caption").inner_text()
    assert page.get_by_role("row", name="attention").count() == 0


def test_counts_equal_the_package_over_many_settings(page):
    seen = 0
    for width, k in itertools.product((256, 1088, 4096), (6, 8, 12, 17)):
        slider(page, "width D").fill(str(width))
        slider(page, "length").fill(str(k))
        for device, way, small in (("T4", "library FFTs", "in chains"), ("H200", "one fused operator", "one by one")):
            if way == "one fused operator" and k == 17:
                continue
            for name in (device, way, small):
                press(page, name)
            shown = data(page)
            assert (shown["setting"]["width"], shown["setting"]["length"]) == (width, 2**k)
            assert (shown["setting"]["device"], shown["setting"]["fused"]) == (device, way != "library FFTs")
            assert shown["setting"]["compiled"] is (small == "in chains")
            assert_agrees_with_the_package(shown)
            seen += 1
    assert seen == 21


def test_a_convolution_that_leaves_the_chip_cannot_be_fused(page):
    slider(page, "length").fill("12")
    press(page, "one fused operator")
    assert data(page)["setting"]["fused"] is True
    slider(page, "length").fill("13")
    assert data(page)["setting"]["fused"] is False
    assert_agrees_with_the_package(data(page))
    assert page.get_by_role("button", name="one fused operator").is_disabled()
    slider(page, "length").fill("14")
    assert_agrees_with_the_package(data(page))


def test_an_axis_measures_the_bars(page):
    assert page.locator(".tim-word").first.inner_text() == (
        "µs for each token of a training step: 512 tokens a text, one A100")
    ticks = page.locator(".tim-axis span")
    assert ticks.all_inner_texts() == ["0 µs", "1", "2"]
    totals = [sum(t["time"] for t in of.values()) for of in data(page)["times"].values()]
    box = page.locator(".tim-bar").first.bounding_box()
    for number, at in ((1, 1), (2, 2)):
        tick = ticks.nth(number).bounding_box()
        assert tick["x"] + tick["width"] / 2 == pytest.approx(box["x"] + box["width"] * at / max(totals), abs=1)


def test_what_is_fused_moves_no_other_bar_and_no_axis(page):
    def drawn():
        ticks = page.locator(".tim-axis span").evaluate_all("nodes => nodes.map(n => [n.textContent, n.style.left])")
        bars = page.locator(".tim-bar").evaluate_all("nodes => nodes.map(n => [...n.querySelectorAll('i')].reduce("
                                                     "(sum, i) => sum + i.getBoundingClientRect().width, 0))")
        times = [sum(t["time"] for t in of.values()) for of in data(page)["times"].values()]
        return ticks, dict(zip(NAMES, zip(bars, times, strict=True), strict=True))

    ticks, before = drawn()
    scale = before["pure"][0] / before["pure"][1]
    press(page, "one fused operator")
    now, fused = drawn()
    assert now == ticks and fused["llama"] == pytest.approx(before["llama"]), "Llama has no convolution"
    assert fused["pure"][0] < before["pure"][0]
    press(page, "in chains")
    now, chains = drawn()
    assert now == ticks
    assert all(width == pytest.approx(scale * time, abs=1) for width, time in chains.values())
    press(page, "H200")
    assert drawn()[0] != ticks, "another device moves all bars, and has its axis"


def test_a_bar_lists_its_parts(page):
    press(page, "RTX 4090")
    for model in NAMES:
        bar(page, model).click()
        shown = data(page)
        parts, times = shown["counts"][model], shown["times"][model]
        whole, longest = (sum(x) for x in ((p["operations"] for p in parts.values()),
                                           (t["time"] for t in times.values())))
        rows = page.locator("tbody tr:not([hidden])").all()
        present = [part for part in parts if parts[part]["operations"]]
        assert [row.locator("th").inner_text() for row in rows] == present
        for row, part in zip(rows, present, strict=True):
            assert row.locator("td").all_inner_texts() == [
                f"{100 * parts[part]['operations'] / whole:.1f}%", f"{100 * times[part]['time'] / longest:.1f}%",
                times[part]["bound"]]
        waits = sum(t["time"] for t in times.values() if t["bound"] == "bandwidth")
        assert f"{NAMES[model]}: {100 * waits / longest:.0f}% of the time" in page.locator("caption").inner_text()


def test_bars_have_the_lengths_of_the_times_and_stripes_where_memory_binds(page):
    slider(page, "length").fill("14")
    shown = data(page)["times"]
    longest = max(sum(t["time"] for t in of.values()) for of in shown.values())
    for number, (model, of) in enumerate(shown.items()):
        box = page.locator(".tim-bar").nth(number)
        whole = box.bounding_box()["width"]
        drawn = box.locator("i").evaluate_all("nodes => nodes.map(n => n.getBoundingClientRect().width)")
        assert drawn == pytest.approx([whole * t["time"] / longest for t in of.values()], abs=0.6)
        striped = box.locator("i").evaluate_all("nodes => nodes.map(n => n.classList.contains('tim-waits'))")
        assert striped == [t["bound"] == "bandwidth" for t in of.values()], model


def test_by_keyboard_alone(page):
    order = []
    for _ in range(14):
        page.keyboard.press("Tab")
        order.append(page.evaluate("document.activeElement.ariaLabel ?? document.activeElement.innerText"))
    assert [name.split(",")[0] for name in order[:3]] == list(NAMES.values())
    assert order[3:5] == ["length", "width D"] and order[5:] == [
        "T4", "RTX 3090", "RTX 4090", "A100", "H200", "one by one", "in chains", "library FFTs", "one fused operator"]
    page.keyboard.press("Enter")
    assert data(page)["setting"]["fused"] is True
    slider(page, "length").focus()
    for key, length in (("End", 131072), ("Home", 64), ("ArrowRight", 128), ("ArrowLeft", 64)):
        page.keyboard.press(key)
        assert data(page)["setting"]["length"] == length
        assert_agrees_with_the_package(data(page))
    assert slider(page, "length").get_attribute("aria-valuetext") == "64 tokens"


def test_it_fits_a_phone_and_a_desk(page):
    assert page_width(page) <= 360
    page.set_viewport_size({"width": 1000, "height": 900})
    page.wait_for_function("() => document.querySelector('.tim-set').getBoundingClientRect().left > 300")


def test_two_on_one_page_are_independent(show):
    page = show(viz.time_budget("pure", 512), viz.time_budget("llama", 8192))
    page.locator(".caracal-figure").nth(1).get_by_role("slider", name="length", exact=True).fill("7")
    assert data(page, 0)["setting"]["length"] == 512 and data(page, 1)["setting"]["length"] == 128


def test_text_is_readable_in_every_theme(show_themed):
    page, paper = show_themed(FIGURE)
    colours = page.evaluate("""() => {
      const live = document.querySelector('.caracal-live'), css = (s) => getComputedStyle(live.querySelector(s)).color;
      return [css('.tim-model > span'), css('tbody td'), css('tbody th'), css('thead th'), css('.caracal-help')];
    }""")
    assert all(contrast(c, paper) > 7 for c in colours[:3]) and all(contrast(c, paper) > 4.5 for c in colours[3:])
