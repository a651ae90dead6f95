"""The command evaluate: what training measured, propensities, labels that training never saw."""

from __future__ import annotations

import csv
import json
import re
import shutil
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from shared.command_line import N_TEST, QUICK, ROWS, TEST_ROWS, TEST_TEXT, TEXT, run
from shared.paths import DATA
from xmlsgd import evaluate_ranking, load_file
from xmlsgd.cli import main
from xmlsgd.data.text import read_raw_text
from xmlsgd.estimators import XMLClassifier
from xmlsgd.metrics import drop_pairs


@pytest.mark.parametrize("form", ["rows", "text"])
def test_evaluation_repeats_what_training_measured(models, tmp_path, form):
    run("evaluate", models / form, {"rows": TEST_ROWS, "text": TEST_TEXT}[form], "--json", tmp_path / "e.json")
    trained, evaluated = (json.loads(p.read_text()) for p in (models / f"{form}.json", tmp_path / "e.json"))
    for name in ("P@1", "P@3", "P@5", "nDCG@5"):
        assert evaluated[name] == trained[name], name
    assert evaluated["predict_rows_per_second"] > 0
    assert evaluated["peak_memory_bytes"] > 0


def test_evaluation_at_other_k_and_with_propensities(models, capsys):
    run("test", models / "rows", TEST_ROWS, "-k", "2", "--top-k", "10", "--propensity", ROWS)
    head, *rows = capsys.readouterr().out.splitlines()
    assert head.split() == ["@1", "@2", "@3", "@5", "@10"]
    assert [row.split()[0] for row in rows[:4]] == ["P", "nDCG", "R", "PSP"]


def test_further_metrics_have_a_row_each_by_either_of_their_names(models, capsys):
    names = ("ndcg", "PSnDCG", "psndcg", "micro F1", "coverage")
    run("evaluate", models / "rows", TEST_ROWS, "--quiet", *(word for name in names for word in ("--metric", name)))
    rows = [re.split("  +", line)[0] for line in capsys.readouterr().out.splitlines()[1:]]
    assert rows == ["P", "nDCG", "R", "PSP", "PSnDCG", "micro F1", "coverage"]


def test_propensities_are_those_of_training_unless_others_are_given(models, tmp_path):
    """Labels that training never saw are the rarest."""
    test = tmp_path / "test.txt"
    test.write_text("brand_new_label\tread a json file\n" + Path(TEST_TEXT).read_text())
    results, counts = [], []
    for more in ((), ("--propensity", TEXT), ("--propensity", TEST_TEXT)):
        run("evaluate", models / "text", test, "--json", tmp_path / "e.json", "--quiet", *more)
        result = json.loads((tmp_path / "e.json").read_text())
        assert (result["propensities"]["A"], result["propensities"]["B"]) == (0.55, 1.5)
        results.append(result["PSP@3"])
        counts.append(result["propensities"]["counts"])
    assert results[0] == results[1] != results[2]
    assert counts == ["model", TEXT, TEST_TEXT]


def test_rare_labels_come_earlier_the_higher_the_power(models, capsys, tmp_path):
    model, test, rows_of = XMLClassifier.load(models / "rows"), load_file(TEST_ROWS), []
    for power in ("0", "0.5", "1"):
        run("predict", models / "rows", TEST_ROWS, "--k", "1", "--propensity-power", power, "--out", tmp_path / "p.txt")
        first = [int(line.partition(":")[0]) for line in (tmp_path / "p.txt").read_text().splitlines()]
        rows_of.append(model.label_counts_[first].mean())
    assert rows_of[0] > rows_of[1] > rows_of[2]
    words = ("--propensity", ROWS, "--propensity-power", "1", "--json", tmp_path / "e.json", "--quiet")
    run("evaluate", models / "rows", TEST_ROWS, *words)
    labels, chances = model.predict_topk(test.X, label_weight=model.inverse_propensity(), proba=True)
    measured = json.loads((tmp_path / "e.json").read_text())["PSP@1"]
    assert measured == evaluate_ranking(test.Y, labels, load_file(ROWS).Y)["PSP@1"]
    run("predict", models / "rows", TEST_ROWS, "--propensity-power", "1", "--out", tmp_path / "p.txt")
    lines = (tmp_path / "p.txt").read_text().splitlines()
    assert lines[0] == " ".join(f"{j}:{z:.6g}" for j, z in zip(labels[0], chances[0].tolist(), strict=True))
    for power in ("-1", "nan", "inf"):
        assert main(["evaluate", str(models / "rows"), TEST_ROWS, "--propensity-power", power]) == 2
        assert "--propensity-power: must be 0 or more, got " in capsys.readouterr().err
    assert main(["evaluate", str(models / "rows"), TEST_ROWS, "--propensity-power", "1e6"]) == 2
    assert "makes weights that are not finite, got 1e+06; pass 1 or less" in capsys.readouterr().err


def test_labels_that_training_never_saw_are_counted_not_refused(models, tmp_path):
    test = tmp_path / "test.txt"
    test.write_text("brand_new_label\tread a json file\n" + Path(TEST_TEXT).read_text())
    run("evaluate", models / "text", test, "--json", tmp_path / "e.json")
    result = json.loads((tmp_path / "e.json").read_text())
    assert result["data"]["test"]["rows"] == N_TEST + 1
    known = json.loads((models / "text.json").read_text())
    assert result["P@1"] == pytest.approx(known["P@1"] * N_TEST / (N_TEST + 1))


def test_evaluate_prints_only_its_table_with_quiet(models, capsys):
    run("evaluate", models / "rows", TEST_ROWS, "--quiet")
    said = capsys.readouterr()
    assert [line.split()[0] for line in said.out.splitlines()] == ["@1", "P", "nDCG", "R", "PSP"]
    assert said.err == ""


def ranked_by_hand(model, test, train, k=1):
    """Return PSP@k in percent of texts by label names alone: columns play no part."""
    texts = [line.rstrip("\n").split("\t") for line in test.read_text().splitlines()]
    counts, rows = Counter(), train.read_text().splitlines()
    for line in rows:
        counts.update(line.split("\t")[0].split(","))
    C = (np.log(len(rows)) - 1) * 2.5**0.55
    gain = {name: 1 + C * (counts[name] + 1.5) ** -0.55 for names, _ in texts for name in names.split(",")}
    best = model.classes_[model.predict_topk([text for _, text in texts], k=k)[0][:, 0]]
    hits = sum(gain[name] for (names, _), name in zip(texts, best, strict=True) if name in names.split(","))
    return 100 * hits / sum(max(gain[name] for name in names.split(",")) for names, _ in texts)


def test_propensities_may_come_from_rows_with_unknown_labels_and_words(models, tmp_path):
    train, test = tmp_path / "train.txt", tmp_path / "test.txt"
    # Each has new labels of its own, and one in common, in another order.
    train.write_text("zz_common\tnewword a\nzz_common,bb_train\tnewword b\n" * 20 + Path(TEXT).read_text())
    test.write_text("aa_test\tread a file\nzz_common\topen a file\n" * 20 + Path(TEST_TEXT).read_text())
    run("evaluate", models / "text", test, "--propensity", train, "--json", tmp_path / "e.json", "--quiet")
    result = json.loads((tmp_path / "e.json").read_text())
    expected = ranked_by_hand(XMLClassifier.load(models / "text"), test, train)
    assert result["PSP@1"] == pytest.approx(expected)


def test_propensities_of_a_folder_are_those_of_its_training_part(models, tmp_path):
    for source, name in ((DATA, "folder"), (ROWS, "file")):
        run("evaluate", models / "rows", TEST_ROWS, "--propensity", source, "--json", tmp_path / name, "--quiet")
    folder, file = (json.loads((tmp_path / name).read_text())["PSP@5"] for name in ("folder", "file"))
    assert folder == file


def test_a_folder_may_hold_test_rows_alone(models, tmp_path):
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "test.txt").write_text(Path(TEST_ROWS).read_text())
    for source, name in ((tmp_path / "set", "folder"), (TEST_ROWS, "file")):
        run("evaluate", models / "rows", source, "--json", tmp_path / name, "--quiet")
    folder, file = (json.loads((tmp_path / name).read_text())["P@5"] for name in ("folder", "file"))
    assert folder == file


def test_training_on_too_few_rows_for_propensities_saves_a_model(tmp_path):
    (tmp_path / "two.txt").write_text("0 0:1\n1 1:1\n")
    run("train", tmp_path / "two.txt", "--test", tmp_path / "two.txt", "--out", tmp_path / "m", "--quiet", *QUICK)
    assert "PSP@1" not in json.loads((tmp_path / "m" / "train.json").read_text())


def test_propensities_of_rows_without_names_match_labels_by_number(models, tmp_path, capsys):
    run("evaluate", models / "text", TEST_TEXT, "--propensity", ROWS, "--json", tmp_path / "e.json", "--quiet")
    assert 0 < json.loads((tmp_path / "e.json").read_text())["PSP@1"] < 100
    (tmp_path / "other.txt").write_text("1 3 9999\n5 0:1\n")
    words = ("evaluate", models / "text", TEST_TEXT, "--propensity", tmp_path / "other.txt")
    assert main([str(word) for word in words]) == 2
    assert "must have label names, or the 643 labels of the model, got 9999 without names" in capsys.readouterr().err


def test_f1_and_calibration_are_reported_and_repeat_what_training_measured(models, tmp_path, capsys):
    run("evaluate", models / "text", TEST_TEXT, "--json", tmp_path / "e.json")
    said, result = capsys.readouterr().out, json.loads((tmp_path / "e.json").read_text())
    trained = json.loads((models / "text.json").read_text())
    for name in ("micro F1", "macro F1", "ECE@5", "threshold"):
        assert result[name] == trained[name]
        assert f"{result[name]:.2f}" in said
    assert len(result["reliability"]["count"]) == 10
    last = next(line for line in said.splitlines() if line.startswith("90 to 100 %"))
    assert last.split()[-3].replace(",", "") == str(result["reliability"]["count"][-1])


def test_the_file_of_labels_agrees_with_macro_f1(models, tmp_path):
    test = tmp_path / "test.txt"
    test.write_text("brand_new_label\tread a json file\n" + Path(TEST_TEXT).read_text())
    words = ("--per-label", tmp_path / "labels.csv", "--json", tmp_path / "e.json", "--quiet")
    run("evaluate", models / "text", test, *words)
    rows = list(csv.DictReader((tmp_path / "labels.csv").read_text().splitlines()))
    model = XMLClassifier.load(models / "text")
    assert [row["label"] for row in rows] == [*model.classes_, "brand_new_label"]
    assert rows[-1] == {
        "label": "brand_new_label", "training_rows": "0", "test_rows": "1", "predicted_rows": "0", "threshold": "",
        "mean_probability": "", "precision": "0.00", "recall": "0.00", "F1": "0.00",
    }  # fmt: skip
    predicted = model.predict(read_raw_text(test, labelled=True).texts, "macro")
    assert [int(row["predicted_rows"]) for row in rows[:-1]] == predicted.sum(axis=0).tolist()
    assert [int(row["training_rows"]) for row in rows[:-1]] == model.label_counts_.tolist()
    assert [row["threshold"] for row in rows[:-1]] == [f"{t:.2f}" for t in model.thresholds_["macro"]]
    chances = np.where(predicted.toarray() > 0, model.predict_proba(read_raw_text(test, labelled=True).texts), 0)
    sums = [float(row["mean_probability"] or 0) * int(row["predicted_rows"]) / 100 for row in rows[:-1]]
    np.testing.assert_allclose(sums, chances.sum(axis=0), atol=0.02)
    mean = np.mean([float(row["F1"]) for row in rows])
    assert mean == pytest.approx(json.loads((tmp_path / "e.json").read_text())["macro F1"], abs=0.01)


def test_a_model_is_measured_as_it_is_served_with_a_threshold_and_excluded_labels(models, tmp_path, capsys):
    test, model = read_raw_text(TEST_TEXT, labelled=True), XMLClassifier.load(models / "text")
    retired = model.classes_[np.argsort(-model.label_counts_)[:3]].tolist()
    (tmp_path / "retired.txt").write_text("\n".join(retired))
    words = ("--exclude", tmp_path / "retired.txt", "--threshold", "0.3", "--per-label", tmp_path / "labels.csv")
    run("evaluate", models / "text", TEST_TEXT, *words, "--json", tmp_path / "e.json")
    assert re.search(r"at the threshold 0.3: precision \d+\.\d+, recall \d+\.\d+, micro F1 ", capsys.readouterr().out)
    labels, _ = model.predict_topk(test.texts, len(model.classes_) - 3, exclude=retired, threshold=0.3)
    named = [set(model.classes_[row[row >= 0]]) for row in labels]
    hits = sum(len(row & set(true)) for row, true in zip(named, test.labels, strict=True))
    result = json.loads((tmp_path / "e.json").read_text())
    assert result["at_threshold"]["precision"] == pytest.approx(100 * hits / sum(map(len, named)))
    assert result["at_threshold"]["recall"] == pytest.approx(100 * hits / sum(map(len, test.labels)))
    rows = {row["label"]: row for row in csv.DictReader((tmp_path / "labels.csv").read_text().splitlines())}
    assert {row["threshold"] for row in rows.values()} <= {"0.30", ""}
    assert sum(int(row["predicted_rows"]) for row in rows.values()) == sum(map(len, named))
    assert all(rows[name]["predicted_rows"] == "0" for name in retired)


def test_labels_that_only_the_propensities_have_are_in_the_file_of_labels(small_models, tmp_path):
    (tmp_path / "p.txt").write_text("4 6 5\n4 0:1\n0 1:1\n1 2:1\n2 3:1\n")
    words = ("--propensity", tmp_path / "p.txt", "--per-label", tmp_path / "labels.csv", "--quiet")
    run("evaluate", small_models / "rows", small_models / "good.txt", *words)
    rows = list(csv.DictReader((tmp_path / "labels.csv").read_text().splitlines()))
    assert [row["label"] for row in rows] == ["0", "1", "2", "3", "4"]


def test_a_threshold_of_0_is_refused_before_the_model_is_loaded(tmp_path, capsys):
    assert main(["evaluate", str(tmp_path), str(TEST_TEXT), "--threshold", "0"]) == 2
    assert "--threshold: must be above 0, got 0; every label reaches 0" in capsys.readouterr().err


def test_a_file_of_labels_is_refused_before_rows_are_read(tmp_path, capsys):
    (tmp_path / "test.txt").write_text("no rows at all\n")
    run("train", ROWS, "--out", tmp_path / "m", "--loss", "softmax", "--quiet", *QUICK, "--epochs", "1")
    words = ("evaluate", tmp_path / "m", tmp_path / "test.txt", "--per-label", tmp_path / "labels.csv")
    assert main([str(word) for word in words]) == 2
    assert "--per-label: needs a model with probabilities, got loss 'softmax'" in capsys.readouterr().err


@pytest.mark.parametrize("form", ["rows", "text"])
def test_pairs_of_a_filter_are_dropped_before_anything_is_measured(models, tmp_path, form):
    """Each row's best and third label; labels that the model does not know are skipped."""
    model, source = XMLClassifier.load(models / form), {"rows": TEST_ROWS, "text": TEST_TEXT}[form]
    X = load_file(source).X if form == "rows" else read_raw_text(source, labelled=True).texts
    labels, _ = model.predict_topk(X, 7)
    pairs = [(row, label) for row in range(N_TEST) for label in labels[row, [0, 2]].tolist()]
    (tmp_path / "filter.txt").write_text("".join(f"{row} {label}\n" for row, label in pairs) + "0 99999\n")
    words = ("evaluate", models / form, source, "--quiet", "--json", tmp_path / "e.json")
    run(*words)
    before = json.loads((tmp_path / "e.json").read_text())
    same = shutil.copytree(models / form, tmp_path / "same")
    run(*words, "--filter", tmp_path / "filter.txt", "--against", same)
    result = json.loads((tmp_path / "e.json").read_text())
    if form == "rows":
        expected = evaluate_ranking(load_file(source).Y, np.delete(labels, [0, 2], axis=1))
        assert {name: result[name] for name in expected} == expected
        labels = drop_pairs(labels, np.zeros(labels.shape), pairs)[0]
        assert evaluate_ranking(load_file(source).Y, labels) == expected
    assert result["P@1"] < before["P@1"]
    assert result["micro F1"] < before["micro F1"]
    assert result["reliability"]["count"] != before["reliability"]["count"]
    assert result["against"]["P@5"]["difference"] == 0


def test_pairs_of_a_filter_mean_labels_by_number_where_these_are_the_names(tmp_path):
    (tmp_path / "train.txt").write_text("10\tred\n2\tblue\n" * 20)
    (tmp_path / "test.txt").write_text("10\tred\n2\tblue\n")
    (tmp_path / "filter.txt").write_text("0 10\n")
    run("train", tmp_path / "train.txt", "--out", tmp_path / "m", "--quiet", "--seed", "0")
    words = ("evaluate", tmp_path / "m", tmp_path / "test.txt", "--quiet", "--json", tmp_path / "e.json")
    run(*words, "--filter", tmp_path / "filter.txt")
    assert json.loads((tmp_path / "e.json").read_text())["P@1"] == 50


@pytest.mark.parametrize("line", ["1", "0 1 2", "333 1", "-1 0", "0 one"])
def test_a_filter_that_is_no_pairs_of_these_rows_is_refused(models, tmp_path, capsys, line):
    (tmp_path / "filter.txt").write_text(f"0 1\n{line}\n")
    assert main(["evaluate", str(models / "rows"), TEST_ROWS, "--filter", str(tmp_path / "filter.txt")]) == 2
    wanted = f"filter.txt:2: must be a row below 333 and a label, as in `0 17`, got '{line}'"
    assert wanted in capsys.readouterr().err


def test_groups_of_test_rows_count_the_same(models, tmp_path, capsys):
    (tmp_path / "groups.txt").write_text("big\n" * (N_TEST - 9) + "small\n" * 9)
    words = ("evaluate", models / "rows", TEST_ROWS, "--json", tmp_path / "e.json", "--groups")
    run(*words, tmp_path / "groups.txt")
    result = json.loads((tmp_path / "e.json").read_text())
    model, test = XMLClassifier.load(models / "rows"), load_file(TEST_ROWS)
    hits = [int(best in test.Y.row(i)[0]) for i, best in enumerate(model.predict_topk(test.X, 1)[0][:, 0])]
    big, small = 100 * np.mean(hits[:-9]), 100 * np.mean(hits[-9:])
    assert result["groups"]["P@1"] == pytest.approx((big + small) / 2)
    assert result["groups"]["P@1 std"] == pytest.approx(abs(big - small) / 2)
    assert small > 0
    assert result["groups"]["n"] == 2
    assert "mean of 2 groups: P@1" in capsys.readouterr().out
    (tmp_path / "groups.txt").write_text("a\n")
    assert main([str(word) for word in (*words, tmp_path / "groups.txt")]) == 2
    assert "must have a line for each of 333 rows, got 1" in capsys.readouterr().err


def test_a_large_number_of_a_label_takes_no_memory(models, tmp_path):
    """It counts as any label that the model does not know; the model has 643 labels."""
    lines, results = Path(TEST_ROWS).read_text().splitlines(keepends=True)[1:], []
    for number in ("643", "2147483646"):
        (tmp_path / "test.txt").write_text(f"{number},{lines[0]}" + "".join(lines[1:]))
        given = ["evaluate", models / "rows", tmp_path / "test.txt", "--json", tmp_path / "e.json"]
        run(*given, "--per-label", tmp_path / "labels.csv")
        result = json.loads((tmp_path / "e.json").read_text())
        results.append({name: value for name, value in result.items() if "@" in name or "F1" in name})
        with (tmp_path / "labels.csv").open() as file:
            last = list(csv.DictReader(file))[-1]
        assert (last["label"], last["training_rows"], last["test_rows"]) == (number, "0", "1")
    assert results[0] == results[1]
    assert results[0]["macro F1"] > 0


def test_a_model_is_compared_with_an_earlier_one_of_other_labels(tmp_path, capsys):
    """Each in the columns of its own model."""
    lines = Path(TEXT).read_text().splitlines()
    for name, part in (("old", lines[: len(lines) // 3]), ("new", lines)):
        (tmp_path / f"{name}.txt").write_text("\n".join(part))
        run("train", tmp_path / f"{name}.txt", "--out", tmp_path / name, "--seed", "0", "--quiet")
    run("evaluate", tmp_path / "old", TEST_TEXT, "--quiet", "--json", tmp_path / "old.json")
    capsys.readouterr()
    words = ("evaluate", tmp_path / "new", TEST_TEXT, "--against", tmp_path / "old", "--json", tmp_path / "new.json")
    run(*words)
    new, old = (json.loads((tmp_path / f"{name}.json").read_text()) for name in ("new", "old"))
    assert new["against"]["model"] == str(tmp_path / "old")
    for metric in ("P@1", "P@3", "P@5"):
        against = new["against"][metric]
        assert against["other"] == pytest.approx(old[metric])
        assert against["difference"] == pytest.approx(new[metric] - old[metric])
        assert against["interval"][0] < against["difference"] < against["interval"][1]
    first = f"P@1 {new['against']['P@1']['difference']:+.2f} (95 % CI "
    assert f"compared with {tmp_path / 'old'}: {first}" in capsys.readouterr().out


def test_standard_input_is_not_read_for_two_models(models, capsys):
    assert main(["evaluate", str(models / "rows"), "-", "--against", str(models / "text")]) == 2
    assert "--against: both models read TEST, got standard input" in capsys.readouterr().err


def test_a_model_is_not_compared_with_itself(models, tmp_path, capsys):
    (tmp_path / "current").symlink_to(models / "text")
    assert main(["evaluate", str(models / "text"), TEST_TEXT, "--against", str(tmp_path / "current")]) == 2
    assert f"--against: must be another model, got {tmp_path / 'current'}, which is" in capsys.readouterr().err


def test_an_error_of_the_other_model_names_it(models, tmp_path, capsys):
    (tmp_path / "test.csv").write_text("text,labels\nread a file,read\n")
    assert main(["evaluate", str(models / "text"), str(tmp_path / "test.csv"), "--against", str(models / "rows")]) == 2
    assert f"--against {models / 'rows'}: {tmp_path / 'test.csv'}: the model was trained" in capsys.readouterr().err


def test_warnings_about_the_other_model_name_it_and_it_may_have_few_labels(models, tmp_path, capsys):
    (tmp_path / "few.txt").write_text("read\tread a file\nopen\topen a socket\n" * 10)
    (tmp_path / "one.txt").write_text(Path(TEST_TEXT).read_text().splitlines()[0] + "\n")
    run("train", tmp_path / "few.txt", "--out", tmp_path / "few", "--quiet", "--seed", "0")
    capsys.readouterr()
    run("evaluate", models / "text", tmp_path / "one.txt", "--against", tmp_path / "few", "--k", "10")
    out, err = capsys.readouterr()
    assert f"warning: --against {tmp_path / 'few'}: {tmp_path / 'one.txt'}: the model knows none of its labels" in err
    assert "P@10 +" in out
    assert "CI" not in out, "a single row has no interval"


def test_k_may_be_100_even_if_the_model_has_fewer_labels_as_in_metrics(tmp_path):
    (tmp_path / "few.txt").write_text("0 0:1\n1 1:1\n" * 10)
    run("train", tmp_path / "few.txt", "--out", tmp_path / "m", *QUICK, "--quiet")
    words = ("-k", "100", "--against", tmp_path / "other", "--json", tmp_path / "r.json")
    run("export", tmp_path / "m", "--compact", tmp_path / "other")
    run("evaluate", tmp_path / "m", tmp_path / "few.txt", *words)
    assert json.loads((tmp_path / "r.json").read_text())["P@100"] == 1


def test_npz_rows_without_labels_are_not_asked_for_a_tab(tmp_path, capsys):
    (tmp_path / "few.txt").write_text("0 0:1\n1 1:1\n" * 10)
    run("train", tmp_path / "few.txt", "--out", tmp_path / "m", *QUICK, "--quiet")
    for name, matrix in (("X.tst.npz", sp.eye_array(2)), ("Y.tst.npz", sp.csr_array((2, 2)))):
        sp.save_npz(tmp_path / name, matrix)
    for path in (tmp_path / "X.tst.npz", tmp_path):
        run("evaluate", tmp_path / "m", path)
        assert "no row has a label, so that all measures will be 0; pass rows with labels" in capsys.readouterr().err
