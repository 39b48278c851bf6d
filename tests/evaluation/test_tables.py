"""Tables against what stands in the results, figure by figure."""

import html.parser
import re

import numpy as np
import pytest

from elvis.evaluation.bootstrap import paired_difference
from elvis.evaluation.results import Result
from elvis.evaluation.tables import Cell, Table, dataset_table, main_table

RANDOM = np.random.default_rng(0)
EASY, HARD = RANDOM.random(40), RANDOM.random(60)


def result(dataset, method, ap, *, hand_made=True, judgement="", split="", **details):
    details = {"depth": 400, "gallery": 1234, "missing": 0} | details
    return Result(dataset, judgement, split, method, hand_made, "mAP@100", np.asarray(ap), np.asarray(ap), details)


RESULTS = [
    result("easy", "global", 0.5 * EASY),
    result("easy", "chamfer-ot", 0.8 * EASY),
    result("easy", "elvis", 0.9 * EASY, hand_made=False),
    result("hard", "global", 0.5 * HARD),
    result("hard", "chamfer-ot", 0.9 * HARD),
    result("hard", "elvis", 0.8 * HARD, hand_made=False),
]


def cells(table):
    return {row[0].text: dict(zip(table.heading[1:], row[1:], strict=True)) for row in table.rows}


def test_figures_differences_and_intervals_are_those_of_the_results():
    table = cells(main_table(RESULTS, seed=3))
    assert table["chamfer-ot"]["easy"].text == f"{80 * EASY.mean():.1f}"
    found = paired_difference([(0.8 * EASY, 0.9 * EASY)], seed=3)
    expected = f"{90 * EASY.mean():.1f} ({100 * found.value:+.1f} [{100 * found.low:+.1f}, {100 * found.high:+.1f}])"
    assert table["elvis"]["easy"].text == expected
    average = (90 * EASY.mean() + 80 * HARD.mean()) / 2
    assert table["elvis"]["average"].text.startswith(f"{average:.1f} (")


def test_the_baseline_is_the_best_hand_made_method_unless_named():
    assert "(" not in cells(main_table(RESULTS))["chamfer-ot"]["easy"].text
    assert "difference to chamfer-ot" in " ".join(main_table(RESULTS).notes)
    assert "(" not in cells(main_table(RESULTS, baseline="elvis"))["elvis"]["hard"].text
    with pytest.raises(ValueError, match="expected one of global, chamfer-ot, elvis, got 'rrt'"):
        main_table(RESULTS, baseline="rrt")
    trained = [result("easy", name, EASY, hand_made=False) for name in ("b", "a")]
    assert "difference to b" in " ".join(main_table(trained).notes)


def test_the_best_of_a_column_is_marked():
    table = cells(main_table(RESULTS))
    assert {name: row["easy"].best for name, row in table.items()} == {
        "global": False,
        "chamfer-ot": False,
        "elvis": True,
    }
    assert [name for name, row in table.items() if row["hard"].best] == ["chamfer-ot"]


def test_two_that_print_the_same_are_both_best():
    both = [result("easy", "a", EASY), result("easy", "b", EASY + 1e-6)]
    assert all(row["easy"].best for row in cells(main_table(both)).values())


def test_a_single_data_set_has_no_average():
    assert main_table(RESULTS[:3]).heading == ("method", "easy")


def test_a_method_that_lacks_a_data_set_has_no_average():
    table = cells(main_table(RESULTS[:5]))
    assert table["elvis"]["hard"].text == "–"
    assert table["elvis"]["average"].text == "–"
    assert table["global"]["average"].text != "–"


def test_splits_stand_after_their_whole_and_outside_the_average():
    day = np.where(np.arange(40) < 20, EASY, np.nan)
    table = main_table([*RESULTS, result("easy", "global", day, split="day")])
    assert table.heading == ("method", "easy", "easy: day", "hard", "average")
    assert cells(table)["global"]["easy: day"].text == f"{100 * EASY[:20].mean():.1f}"
    assert cells(table)["global"]["average"].text == cells(main_table(RESULTS))["global"]["average"].text


def test_a_data_set_judged_twice_counts_once():
    twice = [
        result(dataset, method, values, judgement=judgement)
        for method, factor in (("global", 1.0), ("other", 0.5))
        for dataset, judgement, values in (("r", "medium", factor * EASY), ("r", "hard", 0.2 * factor * EASY))
    ] + [result("hard", "global", HARD), result("hard", "other", HARD)]
    table = main_table(twice)
    assert table.heading == ("method", "r medium", "r hard", "hard", "average")
    expected = ((100 + 20) * EASY.mean() / 2 + 100 * HARD.mean()) / 2
    assert cells(table)["global"]["average"].text.startswith(f"{expected:.1f}")
    difference = ((50 + 10) * EASY.mean() - (100 + 20) * EASY.mean()) / 4
    assert f"({difference:+.1f} [" in cells(table)["other"]["average"].text


def test_methods_with_other_queries_are_not_compared():
    odd = [result("easy", "global", EASY), result("easy", "other", np.where(EASY > 0.5, EASY, np.nan))]
    assert "(other queries)" in cells(main_table(odd, baseline="global"))["other"]["easy"].text


def test_sizes_and_recall():
    ap = np.where(np.arange(40) < 30, EASY, np.nan)
    table = dataset_table([result("easy", "global", ap, missing=7), result("easy", "elvis", ap)])
    assert table.heading == ("data set", "queries that count", "gallery", "missing", "metric", "first-stage recall")
    (row,) = table.rows
    assert [cell.text for cell in row] == [
        "easy",
        "30 of 40",
        "1,234",
        "7",
        "mAP@100",
        f"{100 * EASY[:30].mean():.1f} at 400",
    ]


AWKWARD = Table(("a|b & <c>", "100 %_#"), ((Cell("x|y & <z>", best=True), Cell("~^\\{}$ –")),), ("note & 95 %",))


def test_markdown_keeps_its_columns():
    for line in AWKWARD.render("markdown").splitlines()[:3]:
        assert len(re.findall(r"(?<!\\)\|", line)) == 3
    assert "**x\\|y & <z>**" in AWKWARD.render("markdown")


def test_latex_escapes_what_is_special():
    text = AWKWARD.render("latex")
    assert r"\textbf{x|y \& <z>} & \textasciitilde{}\textasciicircum{}\textbackslash{}\{\}\$ -- \\" in text
    assert r"100 \%\_\#" in text
    assert text.count("{") - text.count(r"\{") == text.count("}") - text.count(r"\}")


def test_html_is_well_formed():
    stack, texts = [], []

    class Reader(html.parser.HTMLParser):
        def handle_starttag(self, tag, attrs):
            stack.append(tag)

        def handle_endtag(self, tag):
            assert stack.pop() == tag

        def handle_data(self, data):
            texts.append(data)

    Reader().feed(AWKWARD.render("html"))
    assert not stack
    assert {"a|b & <c>", "x|y & <z>", "note & 95 %"} <= set(texts)
