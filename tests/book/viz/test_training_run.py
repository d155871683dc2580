"""The figure of a training run: thinned curve, quoted losses, escaped texts, a still, and one-line errors."""

import json
import math
import random
import re
from xml.etree import ElementTree

import pytest
from figure_stills import still_of

from caracal_book import viz
from caracal_book.viz.training_run import training_run
from caracal_book.viz.training_run_log import drawable, thin
from caracal_book.viz.training_run_still import _lines

BASELINES = {"a bigram model": 2.71, "a uniform guess": math.log(256)}


def make_log(steps=40, every=10):
    draw = random.Random(steps)
    log = []
    for step in range(1, steps + 1):
        log.append({"step": step, "loss": 1.9 + 3.6 * math.exp(-6 * step / steps) + draw.uniform(-0.1, 0.1)})
        if step % every == 0:
            log[-1]["validation_loss"] = 2.0 + 3.6 * math.exp(-6 * step / steps)
    return log


def make(log=None, texts=None, **options):
    texts = {0: "zq", 25: "the the", 40: "the king"} if texts is None else texts
    samples = [{"step": step, "text": text} for step, text in texts.items()]
    return training_run(make_log() if log is None else log, samples, **options)


def said(figure):
    return [sample["said"] for sample in figure.model["samples"]]


@pytest.mark.parametrize("count", [1, 2, 349, 350, 351, 699, 700, 1000, 19_073, 20_000])
def test_thinning_keeps_the_mean_the_first_point_and_the_order(count):
    draw = random.Random(count)
    points = [(step, 2 + 3 / step + draw.gauss(0, 0.1)) for step in range(1, count + 1)]
    runs = thin(points)
    assert len(runs) <= 350 and sum(run.count for run in runs) == count
    assert (runs[0].first, runs[0].last, runs[0].mean) == (1, 1, points[0][1])
    assert [run.first for run in runs[1:]] == [run.last + 1 for run in runs[:-1]] and runs[-1].last == count
    weighted = math.fsum(run.mean * run.count for run in runs) / count
    assert weighted == pytest.approx(math.fsum(loss for _, loss in points) / count, rel=1e-12)
    if count <= 350:
        assert [(run.middle, run.mean) for run in runs] == points
    else:
        assert len({run.count for run in runs[1:-1]}) == 1
        run = runs[len(runs) // 2]
        inside = [loss for step, loss in points if run.first <= step <= run.last]
        assert run.mean == pytest.approx(sum(inside) / len(inside)) and len(inside) == run.count > 1


def test_validation_points_are_never_thinned_or_rounded():
    log = make_log(2000, every=2)
    figure = make(log, {0: "a"})
    measured = [[entry["step"], entry["validation_loss"]] for entry in log if "validation_loss" in entry]
    assert figure.model["validation"] == measured and len(measured) == 1000
    assert len(figure.model["training"]) <= 350 and figure.model["training_name"].endswith("mean of 6 steps")


def test_quotes_the_validation_loss_at_the_step_or_last_before_it():
    log = make_log()
    measured = {entry["step"]: entry.get("validation_loss") for entry in log}
    figure = make(log, {40: "c", 25: "b", 0: "a", 5: "early"}, baselines=BASELINES, unit="bits")
    assert [sample["step"] for sample in figure.model["samples"]] == [0, 5, 25, 40]
    assert [sample["measured"] for sample in figure.model["samples"]] == [False, False, True, True]
    assert [sample["at"] for sample in figure.model["samples"]] == [
        [1, log[0]["loss"]], [5, log[4]["loss"]], [20, measured[20]], [40, measured[40]]]
    before, early, middle, end = said(figure)
    assert before == f"before training: first training loss {log[0]['loss']:.2f} bits; " \
                     "below a uniform guess (5.55), above a bigram model (2.71)"
    assert early.startswith(f"step 5: training loss {log[4]['loss']:.2f} bits (at step 5; no validation loss yet)")
    assert middle == f"step 25: validation loss {measured[20]:.2f} bits (measured at step 20); " \
                     "below a bigram model (2.71)"
    assert end == f"step 40: validation loss {measured[40]:.2f} bits; below a bigram model (2.71)"


def test_a_thinned_training_loss_says_over_which_steps():
    log = make_log(2000, every=1000)
    figure = make(log, {100: "a"})
    [only] = figure.model["samples"]
    first, last = map(int, re.search(r"\(steps (\d+) to (\d+); no validation loss yet\)", only["said"]).groups())
    inside = [entry["loss"] for entry in log if first <= entry["step"] <= last]
    assert first <= 100 <= last and len(inside) == 6
    assert only["at"] == [pytest.approx((first + last) / 2), pytest.approx(sum(inside) / 6)]
    assert f"mean training loss {sum(inside) / 6:.2f} nats per token" in only["said"]


def test_a_measurement_before_training_and_a_log_that_starts_late():
    log = [{"step": 0, "loss": 5.5, "validation_loss": 5.6}, {"step": 1, "loss": 5.0}]
    assert said(make(log, {0: "a"})) == ["before training: validation loss 5.60 nats per token"]
    log = [{"step": 10, "loss": 4.0}, {"step": 20, "loss": 3.0, "validation_loss": 3.1}]
    assert said(make(log, {0: "a", 5: "b"})) == [
        "before training: first training loss 4.00 nats per token (at step 10)",
        "step 5: first training loss 4.00 nats per token (at step 10; no validation loss yet)"]


def test_compares_what_is_written():
    log = [{"step": 1, "loss": 3.0, "validation_loss": 2.7136}]
    for baselines, words in [
            ({"a": 2.7061}, "; level with a (2.71)"),
            ({"a": 2.7051, "b": 2.72}, "; below b (2.72), level with a (2.71)"),
            ({"a": 1.0, "b": 2.0, "c": 3.0, "d": 4.0}, "; below c (3.00), above b (2.00)"), ({}, ""), (None, "")]:
        assert said(make(log, {1: "a"}, baselines=baselines)) == [
            "step 1: validation loss 2.71 nats per token" + words]


def test_alt_text_states_the_measured_course():
    log = make_log()
    first, last = (entry["validation_loss"] for entry in (log[9], log[39]))
    alt = make(log, baselines=BASELINES).alt
    assert f"falls from {first:.2f} at step 10 to {last:.2f} at step 40; below a bigram model (2.71)" in alt
    assert "one of 3 steps, from before training to step 40" in alt
    log[39]["validation_loss"] = 9.0
    assert "rises from" in make(log).alt
    assert "is 9.00 at step 40" in make([log[0], log[39]], {1: "a"}).alt


def test_same_arguments_same_html_and_other_texts_another():
    assert make(baselines=BASELINES).to_html() == make(baselines=BASELINES).to_html()
    assert make().id != make(texts={0: "zz"}).id
    assert viz.training_run is training_run and "training_run" in viz.__all__


HOSTILE = ("</script><script>alert(1)</script><!--<img src=x onerror=alert(1)> \"'&amp;{id}"
           "\x00\x07\x1b[2J\x85\u202e\ud800\uffff")


def test_texts_are_escaped_and_their_invisible_characters_shown():
    figure = make(texts={0: HOSTILE, 40: "é" * 5000}, prompt=HOSTILE, baselines={"a <b> & \"c\"": 2.0}, unit="<i>")
    page = figure.to_html()
    assert page.count("</script") == 1 and "<script>" not in page and "onerror=alert" in page
    assert "<img src=x" not in page and "<!--" not in page and "<b>" not in page and "<i>" not in page
    state = json.loads(re.search(r"const state = (\{.*\}), heard = ", page)[1])
    assert state["prompt"] == state["samples"][0]["text"] == (
        "</script><script>alert(1)</script><!--<img src=x onerror=alert(1)> \"'&amp;{id}␀␇␛[2J����")
    assert state["samples"][1]["text"] == "é" * 5000
    ElementTree.fromstring(still_of(figure))


def test_drawable_keeps_text_and_line_ends():
    text = "Ein König,\tсказал царь,\n王は言った 👩‍🚀 \ufffd"
    assert drawable(text) == text
    assert drawable("a\r\nb\u2028c\rd\x7f") == "a\nb\nc␍d␡"
    assert set(drawable("".join(map(chr, range(0x20))))) & set(map(chr, range(0x20))) == {"\n", "\t"}


def test_still_shows_curves_baselines_and_first_and_last_text():
    figure = make(texts={0: "zq " * 200, 25: "unseen", 40: "the king"}, baselines=BASELINES, prompt="Once")
    svg = still_of(figure)
    tree = ElementTree.fromstring(svg)
    words = [node.text for node in tree.iter("{http://www.w3.org/2000/svg}text")]
    assert {"loss, nats per token", "training step", "validation loss", "training loss", "prompt: Once",
            "a bigram model 2.71", "a uniform guess 5.55", "the king"} <= set(words)
    assert "unseen" not in svg and sum(word.startswith("zq ") for word in words) == 3 and "…" in svg
    curves = [node.get("d").count("L") for node in tree.iter("{http://www.w3.org/2000/svg}path")]
    assert {39, 3} <= set(curves)  # 40 training points and 4 validation points, each curve one path
    assert all(colour not in svg for colour in (viz.palette.content, viz.palette.gate, viz.palette.result,
                                                viz.palette.wrapped))


def test_lines_of_the_still_keep_every_character_and_fit():
    for text in ("x" * 1000, "one two  three " * 40, "\n\na\n", "", "王" * 100, " " * 300):
        lines = _lines(text, 54)
        assert "".join(lines) == text.replace("\n", "")
        assert all(sum(1 + (ord(c) >= 0x300) for c in line.rstrip(" ")) <= 54 for line in lines)


@pytest.mark.parametrize("low, high", [(1.6, 5.6), (2.0, 2.0), (0.0, 0.0), (3.14159, 3.1416), (-2.0, 11.0), (0, 900)])
def test_ticks_enclose_what_is_drawn_and_are_named_apart(low, high):
    log = [{"step": 1, "loss": high}, {"step": 2, "loss": low, "validation_loss": low}]
    ticks = make(log, {1: "a"}).model["y_ticks"]
    values = [value for value, _ in ticks]
    assert values[0] <= low and high <= values[-1] and 2 <= len(values) <= 7
    assert len({name for _, name in ticks}) == len(ticks)
    assert [float(name) for _, name in ticks] == pytest.approx(values, abs=1e-9)


def test_a_baseline_that_is_not_reached_gets_room_for_its_name_below():
    log = [{"step": 1, "loss": 5.0}, {"step": 2, "loss": 2.5, "validation_loss": 2.5}]
    for baseline, lowest in ((2.01, 1), (0.01, 0)):
        model = make(log, {1: "a"}, baselines={"entropy": baseline}).model
        [rule], low, high = model["baselines"], model["y_ticks"][0][0], model["y_ticks"][-1][0]
        line = (high - baseline) / (high - low) * model["plot_height"]
        assert low == lowest and rule["name"] == f"entropy {baseline:.2f}"
        assert rule["label"] <= model["plot_height"] and (rule["label"] > line or baseline < 0.1)


@pytest.mark.parametrize("start", [10.82, 10.9, 10.99, 10.3, 9.6])
def test_the_name_of_a_baseline_does_not_stand_on_its_line(start):
    log = [{"step": 1, "loss": 8.0}, {"step": 9, "loss": 6.2, "validation_loss": 6.2}]
    model = make(log, {1: "a"}, baselines={"guessing": start}).model
    [rule], low, high = model["baselines"], model["y_ticks"][0][0], model["y_ticks"][-1][0]
    line = (high - start) / (high - low) * model["plot_height"]
    assert rule["label"] + 3 < line or rule["label"] - 12 > line, "letters reach 12 pixels up and 3 down"
    assert rule["label"] >= 12


@pytest.mark.parametrize("steps", [1, 7, 800, 19_073])
def test_step_ticks_are_whole_and_within_the_run(steps):
    log = [{"step": 1, "loss": 2.0}, {"step": steps + 1, "loss": 2.0, "validation_loss": 2.0}]
    values = [value for value, _ in make(log, {1: "a"}).model["x_ticks"]]
    assert values[0] == 0 and values[-1] <= steps + 1 and 2 <= len(values) <= 6
    assert all(value == int(value) for value in values)


def test_baseline_labels_stay_apart_and_within_the_plot():
    crowded = {f"model {k}": 2.0 + 0.01 * k for k in range(6)} | {"top": 6.0, "far below": 1.0}
    rules = make(baselines=crowded).model["baselines"]
    assert [rule["loss"] for rule in rules] == sorted(crowded.values(), reverse=True)
    heights = [rule["label"] for rule in rules]
    assert all(b - a >= 16 for a, b in zip(heights, heights[1:], strict=False))
    assert heights[0] >= 0 and heights[-1] <= make().model["plot_height"]


LOG = make_log()


@pytest.mark.parametrize("arguments, message", [
    (dict(log=[]), "the log is empty; give what Trainer.run returns, after at least one step"),
    (dict(log=[{"step": 1, "loss": 2.0}]), "no entry of the log has a validation_loss"),
    (dict(log=[{"step": 1}]), "log entry 0 has no 'loss'"),
    (dict(log=[{"loss": 1.0}]), "log entry 0 has no 'step'"),
    (dict(log=[{"step": -1, "loss": 1.0}]), "log entry 0 has step -1; give a whole number >= 0"),
    (dict(log=[{"step": 1.5, "loss": 1.0}]), "log entry 0 has step 1.5"),
    (dict(log=[{"step": 0, "loss": 1.0, "validation_loss": 1.0}]), "the log ends at step 0"),
    (dict(log=LOG + LOG[-1:]), "log entry 40 is step 40 after step 40; steps must rise"),
    (dict(log=[{"step": 3, "loss": math.nan}]), "loss at step 3 is nan; give a finite number"),
    (dict(log=[{"step": 3, "loss": 1.0, "validation_loss": math.inf}]), "validation loss at step 3 is inf"),
    (dict(texts={}), "no samples; give at least one"),
    (dict(texts={41: "a"}), "sample 0 is of step 41; the log ends at step 40"),
    (dict(texts={0: b"bytes"}), "sample 0 is {'step': 0, 'text': b'bytes'}; give {'step': int, 'text': str}"),
    (dict(texts={True: "a"}), "sample 0 has step True"),
    (dict(baselines={"a": math.nan}), "baseline 'a' is nan; give a finite number"),
    (dict(baselines={"a": "low"}), "baseline 'a' is 'low'; give a finite number"),
    (dict(baselines={"": 1.0}), "baseline name is ''; give a string of 1 to 40 characters"),
    (dict(baselines={"n" * 41: 1.0}), "give a string of 1 to 40 characters"),
    (dict(prompt=None), "prompt is None; give a string"),
    (dict(unit=" "), "unit is ' '; give a string of 1 to 40 characters"),
])
def test_errors_in_one_line(arguments, message):
    with pytest.raises(ValueError) as caught:
        make(**arguments)
    assert message in str(caught.value) and "\n" not in str(caught.value)


def test_two_samples_of_one_step():
    with pytest.raises(ValueError, match="two samples are of step 3; give one for each step"):
        training_run(LOG, [{"step": 3, "text": "a"}, {"step": 3, "text": "b"}])


def test_a_wild_opening_does_not_flatten_the_curve():
    log = make_log(100)
    log[0]["loss"] = 900.0
    figure = make(log, {0: "a", 100: "b"})
    assert figure.model["y_ticks"][-1][0] < 10
    assert figure.model["training_name"] == "training loss, at first off the scale"
    assert figure.model["samples"][0]["at"] == [1, 900.0]
    assert "first training loss 900.00" in said(figure)[0]
    level = [{"step": k, "loss": 3.0, "validation_loss": 3.1} for k in range(1, 100)]
    assert make(level, {0: "a"}).model["training_name"] == "training loss"
