"""The benchmark table of all data sets: ranks, relative times, and methods that failed somewhere."""

from benchmarks.ranks import ranks_table
from benchmarks.runs import SEEDS


def run(peer, seconds, accuracy, **more):
    measures = dict.fromkeys(("P@1", "P@3", "P@5", "PSP@1", "PSP@5"), accuracy)
    return {"peer": peer, "setting": "default", "train_seconds": seconds, "measures": measures, **more}


FAILED = {"peer": "omikuji", "setting": "default", "failure": "stopped after 1 s"}
FOUND = {
    "a": [run("ours", 2.0, 50.0, **{SEEDS: [49.0, 51.0]}), run("pecos", 4.0, 60.0), run("omikuji", 8.0, 60.0)],
    "b": [run("ours", 8.0, 30.0), run("pecos", 4.0, 20.0), FAILED],
}


def cells():
    return {row[0]: row[1:] for row in ranks_table(FOUND).rows}


def test_equal_methods_share_the_better_rank():
    assert [cells()[method][2] for method in ("xmlsgd", "pecos", "omikuji")] == ["2.0", "1.5", "1.0"]


def test_a_method_that_failed_on_a_data_set_is_ranked_by_the_others():
    assert cells()["omikuji"] == ["60.0/60.0/60.0", "-", *5 * ["1.0"], "2.00"]
    assert "b: Left out: omikuji: stopped after 1 s" in ranks_table(FOUND).notes


def test_training_times_are_geometric_means_of_ratios():
    assert cells()["xmlsgd"][-1] == "1.00"  # of 0.5 and 2


def test_the_spread_over_seeds_is_half_the_range():
    assert cells()["xmlsgd"][0] == "50.0/50.0/50.0 ±1.0"


def test_the_best_mean_rank_comes_first():
    assert [row[0] for row in ranks_table(FOUND).rows] == ["omikuji", "pecos", "xmlsgd"]


def test_without_the_reference_no_relative_time_is_told():
    assert ranks_table({"a": [run("ours", 2.0, 50.0)]}).rows[0][-1] == "-"
