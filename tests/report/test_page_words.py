"""What the script of a page makes of its data, in words: run by Node on elements that keep their text and nothing else."""

import json
import shutil
import subprocess
from importlib import resources
from typing import Any

import pytest

from sao.report.page import SCRIPTS

NODE = shutil.which("node")
pytestmark = pytest.mark.skipif(NODE is None, reason="there is no Node here: the words of a page are not tried")
BEFORE = """
class Node_ {
  constructor(tag) {
    Object.assign(this, { tag, children: [], attributes: {}, className: "", own: "", dataset: {} });
    this.style = { setProperty() {} };
    this.classList = { toggle() {}, add() {}, remove() {} };
  }
  append(...more) { this.children.push(...more); }
  replaceChildren(...more) { this.children = more; }
  setAttribute(name, value) { this.attributes[name] = String(value); }
  addEventListener() {}
  cloneNode() { return this; }
  get textContent() { return this.own + this.children.map(words).join(""); }
  set textContent(text) { this.own = text; this.children = []; }
  all(tag) {
    const inside = this.children.filter((one) => one instanceof Node_);
    return inside.flatMap((one) => [...(one.tag === tag ? [one] : []), ...one.all(tag)]);
  }
}
const REPORT = { runs: [], tested: [], sheets: {} };
globalThis.document = {
  createElement: (tag) => new Node_(tag),
  createElementNS: (_, tag) => new Node_(tag),
  getElementById: (id) => (id === "data" ? { textContent: JSON.stringify(REPORT) } : new Node_("div")),
};
globalThis.localStorage = { getItem: () => null, setItem() {}, removeItem() {} };
function words(one) {
  if (Array.isArray(one)) return one.flat().filter(Boolean).map(words).join("|");
  return one instanceof Node_ ? one.textContent : String(one);
}
const cells = (table) => table.all("tr").map((row) => row.children.map(words));
"""


def script() -> str:
    folder = resources.files("sao.report").joinpath("template")
    parts = {name: folder.joinpath(f"{name}.js").read_text(encoding="utf-8") for name in SCRIPTS}
    parts["start"] = parts["start"].rpartition("start();")[0]
    return "\n".join(parts.values())


def said(*expressions: str, **given: Any) -> list[Any]:
    """What expressions of the page's script are worth, with data by name."""
    assert NODE is not None
    values = "\n".join(f"const {name} = {json.dumps(value)};" for name, value in given.items())
    found = f"console.log(JSON.stringify([{', '.join(f'({one})' for one in expressions)}]));"
    done = subprocess.run([NODE, "-"], input=f"{BEFORE}\n{script()}\n{values}\n{found}", capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_numbers_are_short():
    values = {
        None: "–", 0: "0.000", 0.00099: "9.90e-4", 0.001: "0.001", 0.12345: "0.123", 9.9994: "9.999", 10: "10.00",
        99.994: "99.99", 100: "100.0", 999.94: "999.9", 1000: "1000", 123456.7: "123457", 1e6: "1.00e+6", -0.5: "-0.500",
        -1234.4: "-1234",
    }  # fmt: skip
    found = said("values.map(shortNumber)", "shortNumber(NaN)", "shortNumber(Infinity)", values=list(values))
    assert found == [list(values.values()), "–", "–"]


def test_one_is_not_many():
    counts = (
        "[count(1, 'image'), count(0, 'image'), count(1234, 'image'), count(1, 'group lies', 'groups lie'), count(2, 'a', 'b')]"
    )
    assert said(counts) == [["1 image", "0 images", "1,234 images", "1 group lies", "2 b"]]


def test_colours_go_from_dark_to_bright():
    found = said("[0, 1, 0.5, -1].map(scaleColour)", "categoryColour(0)", "categoryColour(20).length")
    assert found == [[[52, 34, 110], [250, 230, 70], [54, 158, 126], [52, 34, 110]], [76, 120, 200], 3]


def test_ticks_are_round_and_inside():
    found, words = said(
        "[[0, 10], [0.1, 0.95], [-3, 3], [5, 5]].map(([low, high]) => ticks(low, high, 4))",
        "[0, 12345.678, 1e5, 0.1 + 0.2, 1e-14].map(tickWords)",
    )
    assert found == [[0, 5, 10], [pytest.approx(0.5)], [-2, 0, 2], [5]]
    assert words == ["0", "12350", "1e+5", "0.3", "0"]


def test_a_chart_says_its_last_values_and_those_at_a_step():
    series = [{"name": "x", "steps": [2, 4, 9], "values": [0.5, 0.25, 1.5]}, {"name": "y", "steps": [4], "values": [3]}]
    charts = [{"title": "A", "kind": "lines", "series": one} for one in (series, [{"name": "x", "steps": [1], "values": [-1]}])]
    found = said(
        "chartWords(charts[0])",
        "words(legendParts(charts[0], null))",
        "words(legendParts(charts[0], 5))",
        "nearestStep(charts[0], 6.6)",
        "domainOf(charts)",
        charts=charts,
    )
    assert found[:4] == ["A; last values: x 1.500, y 3.000", "last|x 1.500|y 3.000", "step 5|x 0.250|y 3.000", 9]
    assert found[4] == pytest.approx({"first": 1, "last": 9, "low": -1 - 0.24, "high": 3 + 0.24})


def metric(key: str, of: str, value: float | None, std: float | None = None, **protocol: Any) -> dict[str, Any]:
    return {"key": key, "word": f"the {key}", "of": of, "value": value, "std": std, "share": True, "protocol": protocol}


def test_metrics_stand_in_columns_of_their_representations():
    metrics = [metric("svm", "raw", 0.5), metric("svm", "learnt", 0.75, 0.0124)]
    metrics += [metric("nmi", "learnt", None), metric("svm", "pca", 0.5)]
    compared = [{"word": "the svm", "with": "raw", "difference": 0.25, "interval": [0.1, -0.4], "decided": True}]
    table, best, rows = said(
        "cells(metricsTable(metrics, compared))",
        "[1, -1].map((sign) => [true, false].map((decided) => decidedBest({ decided, difference: sign, with: 'raw' })))",
        "cells(comparedTable([one, {...one, difference: -0.5, with: 'pca'}, {...one, decided: false}]))",
        metrics=metrics,
        compared=compared,
        one=compared[0],
    )
    assert table == [
        ["", "learnt", "raw inputs", "their PCA"],
        ["the svm", "0.750 ± 0.012", "0.500", "0.500"],
        ["the nmi", "–", "", ""],
    ]
    assert best == [["learnt", None], ["raw", None]]
    assert rows == [
        ["metric", "against the best", "difference", "learnt is"],
        ["the svm", "raw inputs", "+0.250 (+0.100 to -0.400)", "better"],
        ["the svm", "their PCA", "-0.500 (+0.100 to -0.400)", "worse"],
        ["the svm", "raw inputs", "+0.250 (+0.100 to -0.400)", "unclear"],
    ]


def test_a_protocol_is_said_fact_by_fact():
    facts = {"C": 0.1, "interval_95": [0.25, 0.75], "C_held_out_accuracy": {"0.1": 0.5, "n_of": 3}, "split": "test"}
    (found,) = said("words(protocolLines(one))", one=metric("svm", "learnt", 0.5, **facts))
    assert found == "the svm, learnt|C0.1interval 950.250 to 0.750C held out accuracy0.1 0.500, n of 3splittest"


@pytest.mark.parametrize(("better", "kind"), [(True, "yes"), (False, "no"), (None, "open")])
def test_the_verdict_has_its_claim_and_its_reasons(better, kind):
    verdict = {"better": better, "claim": "It is.", "reasons": "Because.", "sentence": "It is: because."}
    found = said(
        "(() => { const box = verdictBox({ verdict, compared: [] }); return [box.className, words(box)]; })()",
        "words(verdictBox({ verdict: null, compared: [] }))",
        verdict=verdict,
    )
    assert found == [[f"verdict {kind}", "It is.Because."], "No verdict is stored for this step: sao eval makes one."]


def test_runs_against_each_other_in_words():
    row = {"word": "svm", "first": 0.5, "second": 0.75, "difference": 0.25, "interval": [0.125, 0.375], "decided": True}
    tested = [
        {"samples": 1234, "rows": [row, {**row, "decided": False}, {**row, "difference": -0.25}]},
        {"rows": [], "reason": "there are no labels"},
    ]
    lines, table = said(
        "testedAgainst([{name: 'a'}, {name: 'b'}, {name: 'c'}], tested).filter((one) => one.tag !== 'div').map(words)",
        "cells(testedAgainst([{name: 'a'}, {name: 'b'}, {name: 'c'}], tested)[2])",
        tested=tested,
    )
    assert lines == [
        "Is one better?",
        "b (second) against a (first), sample by sample on the same 1,234 held-out samples; "
        "intervals of 95 % for all metrics together.",
        "c (second) against a (first): not tested, because there are no labels.",
    ]
    assert table == [
        ["metric", "first", "second", "difference", "the second is"],
        ["svm", "0.500", "0.750", "+0.250 (+0.125 to +0.375)", "better"],
        ["svm", "0.500", "0.750", "+0.250 (+0.125 to +0.375)", "not measurably different"],
        ["svm", "0.500", "0.750", "-0.250 (+0.125 to +0.375)", "worse"],
    ]


def test_options_that_all_runs_have_come_first():
    runs = [
        {"name": "a", "config": {"x": "1", "same": "2", "own": "3"}, "metrics": []},
        {"name": "b", "config": {"x": "4", "same": "2"}, "metrics": []},
    ]
    found = said(
        "comparison(runs).filter(Boolean).map((one) => one.tag === 'h3' ? words(one) : cells(one))",
        "words(comparison([runs[0], runs[0]]))",
        runs=runs,
    )
    assert found[0] == ["What was set differently", [["", "a", "b"], ["x", "1", "4"]], [["", "a", "b"], ["own", "3", "–"]]]
    assert found[1].endswith("Nothing: the configurations are equal.")


PANEL = """{ labels: {}, view: { sheetOf: () => [null, 0], isHeldOut: (i) => i === 1, heldOutBits: true,
  name: (i) => `n${i}`, link: () => null } }"""
CLASSES = ["cat", "dog", "cow", "elk"]
MAP = {"count": 1500, "names": [f"n{i}" for i in range(9)], "generated": {"sheet": None}, "classes": CLASSES}


@pytest.mark.parametrize(("count", "rows", "words"), [
    (2, 3, "2 images look like none of the others."), (1, 3, "1 image looks like none of the others."),
    (0, 3, "No image stands out."),
])  # fmt: skip
def test_odd_ones_in_words(count, rows, words):
    odd = {"count": count, "rows": list(range(rows)), "scores": [9.26, 6.0, 1.0][:rows]}
    found = said(
        f"oddSection(run, {PANEL}).filter(Boolean).map(words)",
        f"words(oddSection({{ odd: {{ rows: [] }} }}, {PANEL}))",
        run={"odd": odd, "map": MAP},
    )
    assert found[0][0].startswith(f"{words} The score is the distance from what is usual here")
    after = "The marked ones count; after them come the next." if count else "These are the most unusual all the same."
    assert found[0][1] == after
    assert "9.3" in found[0][2]
    assert found[1] == "There are too few samples to say what is unusual."


def test_duplicates_in_words():
    groups = [
        {"keep": 0, "why": "first name", "copies": [[2, "same bytes"], [1, "near"]]},
        {"keep": 3, "why": "largest image", "copies": [[4, "equal"]]},
    ]
    found = said(
        f"duplicatesSection(run, {PANEL}).filter(Boolean).map(words)",
        f"words(duplicatesSection({{ ...run, duplicates: [] }}, {PANEL}))",
        run={"duplicates": groups, "map": MAP},
    )
    assert found[0][:2] == [
        "3 images are there already, in 2 groups of equal or nearly equal images.",
        "1 group lies in the training and the test set: what is measured on these says little about new data.",
    ]
    assert "keep n0 – first name" in found[0][2]
    assert "near n1 (held out)" in found[0][2]
    assert found[1] == "No image is there twice, neither exactly nor nearly, among 1,500 images."


@pytest.mark.parametrize(("count", "alarming"), [(30, False), (31, True)])
def test_copies_are_alarming_beyond_three_times_what_is_expected(count, alarming):
    nearest = [
        {"generated": 3, "of": 2, "distance": 0.5, "suspicious": True},
        {"generated": 4, "of": 5, "distance": 1.5, "suspicious": False},
    ]
    memorised = {"count": count, "of": 1000, "compared_with": 2000, "expected": 0.01, "nearest": nearest}
    (found,) = said(f"words(copiesSection(run, {PANEL}))", run={"map": MAP, "memorised": memorised})
    share = "3.0 %" if count == 30 else "3.1 %"
    assert found.startswith(
        f"{count} of 1,000 generated samples ({share}) lie nearer to one of 2,000 training samples than all but 1.0 % of those "
        "lie to each other. New data of the same kind would score about 1.0 %. "
    )
    assert ("Look at the pairs: some seem to be copied." in found) == alarming
    assert "too near: generated 3 → n2" in found
    assert "too near: generated 4" not in found


def test_the_labels_of_a_group_are_shares_of_all_its_members():
    found = said(
        "words(labelBar([[1, 5], [0, 2], [3, 2], [2, 1]], classes))",
        "mergedCounts([[[0, 2], [1, 1]], [[1, 4]]])",
        "mergedCounts([null])",
        classes=CLASSES,
    )
    assert found == ["dog 50 %,  cat 20 %,  elk 20 %", [[1, 5], [0, 2]], None]


@pytest.mark.parametrize(("change", "words"), [
    ({}, "All 1,500 samples, placed by t-SNE of their features: "),
    ({"sheet": "x"}, "All 1,500 images, placed by t-SNE of their features: "),
    ({"total": 2000}, "1,500 of 2,000 samples, drawn at random, placed by t-SNE"),
    ({"total": 2000, "sheet": "x", "count": 1}, "1 of 2,000 images, drawn at random, placed by t-SNE"),
])  # fmt: skip
def test_the_map_says_how_many_samples_it_shows(change, words):
    shown = {"map": {**MAP, "total": 1500, "by": "t-SNE", "sheet": None, "held_out": "x", **change}}
    (found,) = said("words(mapNote(run))", run=shown)
    assert found.startswith(words)
    assert ("Come closer and dots become images. A blue corner marks those held out of training." in found) == (
        "sheet" in change
    )


def test_a_long_list_shows_sixty_at_a_time():
    (found,) = said(
        """[59, 60, 61, 1300].map((n) => {
          const [box, more] = longList([...Array(n).keys()], (i) => `${i}`, "x");
          return [box.children.length, more.hidden, words(more)];
        })"""
    )
    assert [(shown, hidden) for shown, hidden, _ in found] == [(59, True), (60, True), (60, False), (60, False)]
    assert [text for *_, text in found][2:] == ["Show more (1 left)", "Show more (1,240 left)"]


def test_labels_are_counted_merged_and_written():
    ((first, merged, counts, csv, read, after),) = said(
        """(() => {
          const groups = btoa(String.fromCharCode(0, 0, 1, 0, 1, 0, 2, 0));
          const labels = new Labels({ name: "r", groups: [0, 0, 0], map: { names: ["a", "=b", "c,d", "e"], groups } });
          const first = [labels.groupName(0), labels.counts()];
          labels.nameGroup(1, " cat ");
          labels.merge(2, 1);
          labels.label([0, 1], "dog");
          return [first, labels.groupName(2), labels.counts(), labels.csv(), labels.read(file), labels.csv()];
        })()""",
        file='Name,x,LABEL\nc,1,2\n"c,d",q,\n\'=b,z,"o""x"',
    )
    assert first == ["group 1", []]
    assert merged == "cat"
    assert counts == [["cat", 2], ["dog", 2]]
    assert csv == '\ufeffname,label\r\na,dog\r\n\'=b,dog\r\n"c,d",cat\r\ne,cat\r\n'
    assert read == {"taken": 2, "unknown": 1}
    assert after == '\ufeffname,label\r\na,dog\r\n\'=b,"o""x"\r\ne,cat\r\n'


def test_a_sample_in_words():
    view = """{ labelled: { groupName: (g) => `group ${g + 1}`, of: () => "mine" }, groups: [1, 0], labels: [0, 1], real: 2,
      classes: ["cat", "dog"], isHeldOut: (i) => i === 1, norms: [0.5, NaN], name: (i) => `n${i}`,
      neighbours: () => [1, 0, 1, 0, 1, 0] }"""
    (found,) = said(f"[sampleFacts({view}, 0), sampleFacts({view}, 1), sampleWords({view}, 1)].map((one) => `${{one}}`)")
    assert [one.replace("\u2068", "").replace("\u2069", "") for one in found] == [
        "group 2,class cat,σ 0.500,label mine",
        "group 1,class dog,held out,label mine",
        "n1: group 1, class dog, held out, label mine. Nearest: n1, n0, n1, n0, n1.",
    ]
