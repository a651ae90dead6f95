"""The vectorizer of texts: the numbers of scikit-learn, words added later, files proof against alteration."""

import json
import pickle

import numpy as np
import pytest
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler

from xmlsgd.data.files.manifest import VECTORIZER_FILE
from xmlsgd.data.vectorizer import TextVectorizer
from xmlsgd.data.words import TOKEN_PATTERN
from xmlsgd.errors import DataError, ModelFileError
from xmlsgd.estimators import XMLClassifier

TEXTS = ["Read a JSON file", "write the json FILE again", "sort rows, sort columns", "", "rows of a file", "zzz"]


@pytest.fixture
def saved(tmp_path):
    TextVectorizer(min_df=1, max_features=50).fit([*TEXTS, "Ærø größe 数据 библиотека"]).to_files(tmp_path)
    return tmp_path


def test_words_of_more_texts_come_behind_with_the_idf_of_all_texts():
    before = TextVectorizer().fit(TEXTS)
    more = ["apples and columns", "apples and pears"]
    grown = before.with_words_of(more, len(TEXTS))
    assert grown.words == [*before.words, "and", "apples", "pears"]
    anew = TextVectorizer().fit(TEXTS + more)
    idf = dict(zip(anew.words, anew.transform([" ".join(anew.words)]).data, strict=True))
    row = grown.transform(["apples pears"])
    assert row.indices.tolist() == [len(before.words) + 1, len(before.words) + 2]
    assert row.data[0] / row.data[1] == pytest.approx(idf["apples"] / idf["pears"])
    assert before.transform(more).shape[1] == len(before.words)
    assert grown.with_words_of(more, 99) is grown


def test_a_vectorizer_with_more_words_keeps_the_reason_of_its_choice():
    chosen = TextVectorizer().fit(TEXTS)
    chosen.reason = "chosen on held-out texts"
    assert chosen.with_words_of(["apples and pears"], len(TEXTS)).reason == "chosen on held-out texts"


def test_options_of_a_vectorizer_decide_which_words_are_new():
    more = ["apples the pears", "apples the figs"]
    for options, new in (
        ({"min_df": 2}, ["apples", "the"]),
        ({"min_df": 0.2}, ["apples", "the"]),  # of eight texts
        ({"max_features": 99}, []),
        ({"max_df": 0.2}, []),
        ({"max_df": 9}, []),
        ({"stop_words": ["figs"]}, ["apples", "pears"]),
    ):
        before = TextVectorizer(**options).fit(TEXTS)
        assert before.with_words_of(more, len(TEXTS)).words == [*before.words, *new]
    labelled = TextVectorizer(min_df=2).fit(TEXTS).with_words_of(more, len(TEXTS), ["olives"])
    assert labelled.words[-3:] == ["apples", "olives", "the"]


def test_words_that_were_added_are_saved(tmp_path):
    grown = TextVectorizer().fit(TEXTS).with_words_of(["apples"], len(TEXTS))
    grown.to_files(tmp_path)
    again = TextVectorizer.from_files(tmp_path)
    assert again.words == grown.words
    np.testing.assert_array_equal(again.transform(["apples file"]).data, grown.transform(["apples file"]).data)


def test_half_a_character_separates_n_grams_and_leaves_them_fit_to_save(tmp_path):
    broken = TextVectorizer(min_df=1, analyzer="char_wb", ngram_range=(1, 2)).fit(["a\ud800b"])
    assert broken.words == [" ", " a", " b", "a", "a ", "b", "b "]
    broken.to_files(tmp_path)
    assert TextVectorizer.from_files(tmp_path).words == broken.words


@pytest.mark.parametrize(
    "text",
    ["上海城市规划研究", "図書館情報学の基礎", "ห้องสมุดประชาชน", "CC(=O)OC1=CC=CC=C1C(=O)O"],
    ids=["Chinese", "Japanese", "Thai", "SMILES"],
)
def test_texts_without_spaces_are_warned_of_once(text, recwarn):
    texts = [f"{text}{i}" for i in range(5)] + ["a title in English"]
    TextVectorizer(analyzer="char_wb", ngram_range=(2, 4)).fit(texts)
    assert not recwarn.list
    TextVectorizer().fit(texts)
    (warning,) = recwarn.list
    assert str(warning.message).startswith("texts: most have hardly any spaces between words, as '")
    assert "--analyzer char_wb --ngram-range 1,4, in Python TextVectorizer(" in str(warning.message)


def test_texts_with_spaces_are_not_warned_of(recwarn):
    TextVectorizer().fit([*TEXTS, "Donaudampfschifffahrt und Eisenbahn", "library", "도서관 정보", "上海城市规划"])
    assert not recwarn.list


def test_vectorizer_equals_scikit_learn():
    theirs = TfidfVectorizer(min_df=2, sublinear_tf=True, token_pattern=TOKEN_PATTERN)
    expected = theirs.fit_transform(TEXTS).toarray()
    vectorizer = TextVectorizer(min_df=2)
    X = vectorizer.fit_transform(TEXTS)
    assert vectorizer.words == theirs.get_feature_names_out().tolist() == ["a", "file", "json", "rows"]
    np.testing.assert_allclose(X.toarray(), expected, rtol=1e-6)
    assert X.data.dtype == np.float32


OPTIONS = [
    {"max_df": 2},
    {"max_df": 0.5, "min_df": 2},
    {"min_df": 0.3},
    {"ngram_range": (1, 2)},
    {"ngram_range": [2, 3], "stop_words": ["file", "of"]},
    {"analyzer": "char_wb", "ngram_range": (2, 4), "min_df": 2},
    {"sublinear_tf": False},
    {"stop_words": {"the", "json"}, "max_features": 3},
]


@pytest.mark.parametrize("options", OPTIONS)
def test_options_give_the_numbers_of_scikit_learn(options, tmp_path):
    token = {"token_pattern": TOKEN_PATTERN} if options.get("analyzer") != "char_wb" else {}
    translated = {name: list(value) if name == "stop_words" else value for name, value in options.items()}
    translated["ngram_range"] = tuple(options.get("ngram_range", (1, 1)))
    theirs = TfidfVectorizer(**{"sublinear_tf": True, **token, **translated})
    expected = theirs.fit_transform(TEXTS).toarray()
    vectorizer = TextVectorizer(**options)
    np.testing.assert_allclose(vectorizer.fit_transform(TEXTS).toarray(), expected, rtol=1e-6)
    assert vectorizer.words == theirs.get_feature_names_out().tolist()
    new = ["JSON files of rows, and the the", "xyz"]
    vectorizer.to_files(tmp_path)
    for one in (vectorizer, TextVectorizer.from_files(tmp_path), pickle.loads(pickle.dumps(vectorizer))):
        np.testing.assert_allclose(one.transform(new).toarray(), theirs.transform(new).toarray(), rtol=1e-6)


def test_options_are_copied_to_the_vectorizer_of_a_model_and_saved_with_it(tmp_path):
    options = {"ngram_range": (1, 2), "stop_words": ["the"], "max_df": 0.9}
    model = XMLClassifier(hidden_layer_sizes=(4,), max_epochs=1, vectorizer=TextVectorizer(**options), n_jobs=1)
    model.fit(["read the json", "read xml", "close the json"], [["a"], ["b"], ["a"]])
    model.save(tmp_path / "m", compact=True)
    loaded = XMLClassifier.load(tmp_path / "m")
    for vectorizer in (model.vectorizer_, loaded.vectorizer_, loaded.vectorizer):
        assert {name: vectorizer.options[name] for name in options} == options
    assert loaded.vectorizer_.words == ["close", "close json", "json", "read", "read json", "read xml", "xml"]


@pytest.mark.parametrize(
    "options", [{}, {"analyzer": "char_wb", "ngram_range": (2, 3)}, {"stop_words": ["mu\u0301sica"]}]
)
def test_a_letter_and_its_accent_are_one_character_however_they_are_written(options):
    composed, apart = ["a música é fácil", "Música"], ["a mu\u0301sica e\u0301 fa\u0301cil", "Mu\u0301sica"]
    one, other = TextVectorizer(**options).fit(composed), TextVectorizer(**options).fit(apart)
    assert one.words == other.words
    np.testing.assert_array_equal(one.transform(composed).toarray(), one.transform(apart).toarray())
    grown = TextVectorizer().fit(["file"], label_texts=["fa\u0301cil"]).with_words_of(["fácil mu\u0301sica"], 1)
    assert grown.words == ["file", "fácil", "música"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("हिन्दी भाषा", ["भाषा", "हिन्दी"]),
        ("بِسْمِ اللَّهِ", ["اللَّهِ", "بِسْمِ"]),
        ("בְּרֵאשִׁית בָּרָא", ["בְּרֵאשִׁית", "בָּרָא"]),
        ("தமிழ் மொழி", ["தமிழ்", "மொழி"]),
        ("❤\ufe0f 1\ufe0f\u20e3 ok", ["1", "ok"]),
    ],
)
def test_marks_of_vowels_belong_to_words_and_those_of_pictures_do_not(text, words):
    assert TextVectorizer().fit([text]).words == words


def test_stop_words_are_split_and_lower_cased_as_texts_are():
    assert TextVectorizer(stop_words=["Don't", "READ_it"]).fit(["don read it twice"]).words == ["twice"]


def test_words_of_label_texts_that_too_many_texts_have_are_left_out():
    texts = ["read json", "read xml", "read rows"]
    vectorizer = TextVectorizer(max_df=0.7).fit(texts, label_texts=["read yaml"])
    assert vectorizer.words == ["json", "rows", "xml", "yaml"]
    with pytest.warns(UserWarning, match="max_df=1 leaves out words of two texts and more; 1.0 leaves out none"):
        rare = TextVectorizer(max_df=1).fit([*texts, "json"], label_texts=["json"])
    assert rare.words == ["rows", "xml"]
    assert rare.with_words_of(["new words"], len(texts)) is rare


def test_a_vectorizer_shows_the_options_that_are_not_the_defaults():
    assert repr(TextVectorizer()) == "TextVectorizer()"
    shown = "TextVectorizer(min_df=2, analyzer='char_wb')"
    assert repr(TextVectorizer(2, analyzer="char_wb")) == shown
    many = repr(TextVectorizer(stop_words=[f"word{i}" for i in range(3000)]))
    assert many.startswith("TextVectorizer(stop_words=['word0', 'word1', ")
    assert many.endswith("...)")
    assert len(many) < 120


def test_texts_of_an_iterator_become_rows():
    assert (TextVectorizer().fit_transform(iter(TEXTS)) != TextVectorizer().fit_transform(TEXTS)).nnz == 0


def test_rows_have_norm_one_or_are_empty():
    X = TextVectorizer(min_df=1).fit_transform([*TEXTS, "?!"])
    norms = np.sqrt(np.asarray(X.multiply(X).sum(axis=1)).ravel())
    np.testing.assert_allclose(norms, [1, 1, 1, 0, 1, 1, 0], rtol=1e-6)


def test_identifiers_are_split_at_underscores():
    assert TextVectorizer(min_df=1).fit(["read_json_file x"]).words == ["file", "json", "read", "x"]


def test_single_characters_are_words_and_keep_plus_and_hash():
    words = TextVectorizer().fit(["C++17 and C#, F#: x+y; Notepad++, R 3 .NET a#"]).words
    assert words == ["17", "3", "a#", "and", "c#", "c++", "f#", "net", "notepad", "r", "x+", "y"]


def test_max_features_keeps_the_most_frequent_words():
    assert TextVectorizer(min_df=1, max_features=1).fit(["aa bb", "bb", "cc"]).words == ["bb"]


def test_no_texts_give_no_rows():
    assert TextVectorizer(min_df=1).fit(TEXTS).transform([]).shape[0] == 0


def test_use_before_fit_is_refused():
    with pytest.raises(DataError, match="must be fitted"):
        TextVectorizer().transform(["text"])


@pytest.mark.parametrize("texts", [["?", "!"], ["one", "two"], []])
def test_texts_without_a_frequent_word_are_refused(texts):
    with pytest.raises(DataError, match="no word of letters or digits occurs in at least min_df=2 texts"):
        TextVectorizer(min_df=2).fit(texts)


def test_words_of_label_texts_are_kept_and_weighed_by_texts_alone():
    texts = ["read json", "read xml", "read rows"]
    alone, vectorizer = TextVectorizer(min_df=2).fit(texts), TextVectorizer(min_df=2)
    vectorizer.fit(texts, label_texts=["XML parser", "read"])
    assert alone.words == ["read"]
    assert vectorizer.words == ["parser", "read", "xml"]
    theirs = TfidfVectorizer(sublinear_tf=True, token_pattern=TOKEN_PATTERN, vocabulary=vectorizer.words).fit(texts)
    np.testing.assert_allclose(
        vectorizer.transform(["read xml parser"]).toarray(), theirs.transform(["read xml parser"]).toarray(), rtol=1e-6
    )


@pytest.mark.parametrize(
    ("texts", "message"), [("one text", "got one string"), (["a", None], "row 1: must be a string")]
)
def test_what_is_no_sequence_of_strings_is_refused(texts, message):
    with pytest.raises(DataError, match=message):
        TextVectorizer().fit(texts)


def test_a_matrix_of_one_column_is_texts_as_imputers_return_them():
    texts = ["read a file", "write a file"]
    column = np.array(texts, object)[:, None]
    assert (TextVectorizer().fit_transform(column) != TextVectorizer().fit_transform(texts)).nnz == 0


WRONG = [
    {"min_df": 0},
    {"min_df": "1"},
    {"min_df": 1.5},
    {"max_df": 0.0},
    {"max_df": True},
    {"max_features": -1},
    {"ngram_range": (2, 1)},
    {"ngram_range": (0, 1)},
    {"ngram_range": (1, 17)},
    {"ngram_range": 2},
    {"analyzer": "char"},
    {"analyzer": ["word"]},
    {"stop_words": "the"},
    {"stop_words": ["the", 1]},
    {"stop_words": ["the", "New York"]},
    {"sublinear_tf": 1},
    {"analyzer": "char_wb", "stop_words": ["the"]},
    {"analyzer": "char_wb", "ngram_range": (1, 1)},
]


@pytest.mark.parametrize("options", WRONG)
def test_options_outside_their_range_are_refused(options):
    with pytest.raises(DataError, match=rf"^{[*options][-1]}: must be .*, got"):
        TextVectorizer(**options).fit(TEXTS)
    with pytest.raises(DataError, match=rf"^{[*options][-1]}: must be .*, got"):
        XMLClassifier(vectorizer=TextVectorizer(**options)).fit(np.eye(3), [0, 1, 1])


@pytest.mark.parametrize("options", WRONG)
def test_altered_options_are_refused(saved, options):
    path = saved / VECTORIZER_FILE
    content = json.loads(path.read_text(encoding="utf-8"))
    content["options"] |= options
    path.write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(ModelFileError, match=rf"{[*options][-1]}: must be"):
        TextVectorizer.from_files(saved)


def test_no_word_between_both_frequencies_is_an_error_that_names_them():
    with pytest.raises(
        DataError,
        match=r"no word .* at least min_df=3 and at most max_df=2 texts, got 6 texts; change min_df and max_df,",
    ):
        TextVectorizer(min_df=3, max_df=2).fit(TEXTS)


def test_files_restore_the_same_rows(saved):
    fitted = TextVectorizer(min_df=1, max_features=50).fit([*TEXTS, "Ærø größe 数据 библиотека"])
    restored = TextVectorizer.from_files(saved)
    assert (restored.words, restored.min_df, restored.max_features) == (fitted.words, 1, 50)
    np.testing.assert_array_equal(restored.transform(TEXTS).data, fitted.transform(TEXTS).data)


def test_options_are_parameters_as_of_scikit_learn_which_ask_for_a_new_fit():
    vectorizer = TextVectorizer(min_df=2).fit(TEXTS)
    assert vectorizer.get_params()["min_df"] == 2
    assert vectorizer.set_params().is_fitted
    assert vectorizer.set_params(min_df=1) is vectorizer
    assert (vectorizer.min_df, vectorizer.is_fitted) == (1, False)
    assert vectorizer.fit(TEXTS).get_feature_names_out().tolist() == TextVectorizer().fit(TEXTS).words
    with pytest.raises(DataError, match="lowercase: TextVectorizer has no such option; it has min_df, max_df, "):
        vectorizer.set_params(lowercase=False)


def test_a_pipeline_may_ask_for_its_default_output_and_is_told_that_there_are_no_tables():
    pipe = make_pipeline(TextVectorizer(), MaxAbsScaler())
    assert pipe.set_output(transform="default").fit_transform(TEXTS).shape[0] == len(TEXTS)
    with pytest.raises(DataError, match="transform: TextVectorizer makes sparse rows, got 'pandas'; leave the default"):
        pipe.set_output(transform="pandas")


def test_another_thread_never_finds_a_vectorizer_without_idf(monkeypatch):
    vectorizer = pickle.loads(pickle.dumps(TextVectorizer().fit(TEXTS)))

    class Watched(TfidfVectorizer):
        def __setattr__(self, name, value):
            if name == "idf_":
                assert vectorizer._tfidf is None
            super().__setattr__(name, value)

    monkeypatch.setattr("sklearn.feature_extraction.text.TfidfVectorizer", Watched)
    assert vectorizer.transform(TEXTS).nnz


def test_pickle_restores_the_same_rows():
    fitted = TextVectorizer(min_df=1).fit(TEXTS)
    expected = fitted.transform(TEXTS)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(fitted)).transform(TEXTS).data, expected.data)


@pytest.mark.parametrize(
    "change",
    [
        {"format": "another"},
        {"version": 1},
        {"version": True},
        {"options": {}},
        {"options": []},
        {"options": {"token_pattern": "(a+)+$"}},
        {"words": [], "idf": []},
        {"words": "ab", "idf": [1.0, 1.0]},
        {"words": ["a", "a"], "idf": [1.0, 1.0]},
        {"words": [1, 2], "idf": [1.0, 1.0]},
        {"words": ["a"]},
        {"token_pattern": "(a+)+$"},
        {"idf": [1.0]},
        {"idf": "1.0"},
        *({"words": ["a", "b"], "idf": [1.0, value]} for value in (float("nan"), 0.0, 1e60, "1")),
    ],
)
def test_altered_header_is_refused(saved, change):
    path = saved / VECTORIZER_FILE
    path.write_text(json.dumps({**json.loads(path.read_text(encoding="utf-8")), **change}), encoding="utf-8")
    with pytest.raises(ModelFileError, match=r"must (be|have)"):
        TextVectorizer.from_files(saved)


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b"null", b"\xff", b"[" * 100_000, b'{"format": "xmlsgd text vectorizer"}']
)
def test_broken_header_is_refused(saved, content):
    (saved / VECTORIZER_FILE).write_bytes(content)
    with pytest.raises(ModelFileError, match=VECTORIZER_FILE):
        TextVectorizer.from_files(saved)


def test_link_is_refused(saved):
    (saved / VECTORIZER_FILE).rename(saved / "real.json")
    (saved / VECTORIZER_FILE).symlink_to("real.json")
    with pytest.raises(ModelFileError, match="is missing or no regular file"):
        TextVectorizer.from_files(saved)
