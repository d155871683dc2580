"""The figure of a training run: thinned curve, quoted losses, escaped texts."""

import json
import math
import random
import re

import pytest

from caracal_book.viz.training_run import training_run
from caracal_book.viz.training_run_log import thin

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


@pytest.mark.parametrize("count", [1, 350, 351, 19_073])
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
