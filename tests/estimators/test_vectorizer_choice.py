"""Words, pairs of words or n-grams of characters: what `fit` and the command line choose for texts, and what not."""

import numpy as np
import pytest

from xmlsgd import TextVectorizer, XMLClassifier, XMLEnsemble
from xmlsgd.cli import main
from xmlsgd.data.csr import indicator
from xmlsgd.errors import DataError
from xmlsgd.estimators import vectorizer_choice
from xmlsgd.estimators.vectorizer_choice import LEAST_HELD_OUT, Sample, choose_vectorizer

N_LABELS = 20
LETTERS = np.array(list("abcdefghijklmnopqrstuvwxyz"))
WORDS = [f"word{letter}" for letter in LETTERS[:12]]
CHARACTERS = np.array([chr(0x4E00 + i) for i in range(400)])


def drawn(random, letters, n):
    return "".join(random.choice(letters, n))


def of_words(random, stem):
    """Return a text that has the word of its label among others, which share letters."""
    return " ".join(random.permutation([stem, *(drawn(random, LETTERS[:6], 5) for _ in range(6))]))


def of_compounds(random, stem):
    """Return a text whose words are joined with the stem of its label, no two alike."""
    return " ".join(drawn(random, LETTERS, 5) + stem + drawn(random, LETTERS, 4) for _ in range(2))


def of_pairs(random, stem):
    """Return a text of few words, in which two say its label where they follow each other."""
    words = [str(word) for word in random.choice(WORDS, 8)]
    return " ".join([*words[:4], WORDS[ord(stem[0]) % 12], WORDS[ord(stem[1]) % 12], *words[4:]])


def without_spaces(random, stem):
    """Return a text in characters, two of which say its label."""
    text = drawn(random, CHARACTERS[:300], 20)
    return text[:10] + stem[:2].translate({ord(a): ord(CHARACTERS[300 + i]) for i, a in enumerate(LETTERS)}) + text[10:]


def texts_of(kind, n_texts=600):
    random = np.random.default_rng(0)
    stems = [drawn(random, LETTERS[:6], 5) if kind is of_words else drawn(random, LETTERS, 6) for _ in range(N_LABELS)]
    labels = random.integers(N_LABELS, size=n_texts)
    return [kind(random, stems[label]) for label in labels], labels


def chosen(kind, n_texts=600):
    texts, labels = texts_of(kind, n_texts)
    found = choose_vectorizer(texts, indicator(labels[:, None].tolist(), {i: i for i in range(N_LABELS)}))
    assert not found.is_fitted
    return found.analyzer, found.ngram_range


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (of_words, ("word", (1, 1))),
        (of_pairs, ("word", (1, 2))),
        (of_compounds, ("char_wb", (4, 4))),
        (without_spaces, ("char_wb", (1, 4))),
    ],
)
def test_precision_on_held_out_texts_chooses(kind, expected):
    assert chosen(kind) == expected


def test_the_first_label_counts_more_than_being_among_five():
    texts, labels = texts_of(of_compounds)
    texts = [f"group{label % 4} {text}" for text, label in zip(texts, labels, strict=True)]  # of five labels each
    Y = indicator(labels[:, None].tolist(), {i: i for i in range(N_LABELS)})
    assert choose_vectorizer(texts, Y).analyzer == "char_wb"


def test_features_must_gain_some_standard_errors():
    texts, labels = texts_of(of_compounds)
    labels[::2] = labels[1::2]  # half of them wrong, so that gains differ
    sample = Sample(texts, indicator(labels[:, None].tolist(), {i: i for i in range(N_LABELS)}))
    compared = [vectorizer_choice.WORDS, vectorizer_choice.FOUR]
    assert [sample.best_of(compared, errors)[0] for errors in (1000, 1)] == compared


@pytest.mark.parametrize(("share", "chosen"), [(0.05, vectorizer_choice.WORDS), (0.03, vectorizer_choice.FOUR)])
def test_features_must_gain_a_share_of_the_precision(monkeypatch, share, chosen):
    precision = {vectorizer_choice.WORDS: np.full(300, 0.5), vectorizer_choice.FOUR: np.full(300, 0.52)}
    monkeypatch.setattr(Sample, "_precision", lambda self, features: precision[features])
    assert Sample([""] * 300, None).best_of(list(precision), 1, share)[0] == chosen


def test_few_texts_become_words():
    few = 5 * LEAST_HELD_OUT
    assert [chosen(of_compounds, n)[0] for n in (few - 1, few)] == ["word", "char_wb"]


def test_of_very_many_characters_pairs_are_not_tried_but_named(monkeypatch):
    monkeypatch.setattr(vectorizer_choice, "MOST_PAIRED", 10_000)
    texts, labels = texts_of(of_pairs)
    found = choose_vectorizer(texts, indicator(labels[:, None].tolist(), {i: i for i in range(N_LABELS)}))
    assert found.ngram_range == (1, 1)
    assert found.reason.endswith("(min_df=2, ngram_range=(1, 2)) may gain, not tried on so many characters")


def test_of_long_texts_the_beginnings_are_compared():
    texts, labels = texts_of(of_compounds)
    Y = indicator(labels[:, None].tolist(), {i: i for i in range(N_LABELS)})
    texts[0] += " wort" * 100_000
    assert choose_vectorizer(texts, Y).analyzer == "char_wb"
    assert choose_vectorizer([text + " wort" * 2_000 for text in texts], Y).analyzer == "char_wb"


def test_few_texts_without_spaces_become_ngrams():
    assert chosen(without_spaces, 40) == ("char_wb", (1, 4))


def test_texts_without_a_word_become_ngrams():
    texts, labels = texts_of(of_words)
    signs = str.maketrans("abcdef", "+-*/=!")
    Y = indicator(labels[:, None].tolist(), {i: i for i in range(N_LABELS)})
    assert choose_vectorizer([text.translate(signs) for text in texts], Y).analyzer == "char_wb"


@pytest.mark.parametrize(
    ("kind", "n_texts", "reason"),
    [
        (of_compounds, 600, "mean P@1/3/5 of 600 held-out texts: "),
        (of_compounds, 100, "there are too few texts to compare words and n-grams"),
        (without_spaces, 40, "most texts have hardly any spaces"),
    ],
)
def test_the_plan_says_why(kind, n_texts, reason):
    texts, labels = texts_of(kind, n_texts)
    decided = XMLClassifier().plan(texts, labels).to_dict()["vectorizer"]
    assert decided["reason"].startswith(reason)
    given = TextVectorizer(min_df=2, analyzer="char_wb", ngram_range=(1, 4))
    decided = XMLClassifier(vectorizer=given).plan(texts, labels).to_dict()["vectorizer"]
    assert (decided["value"], decided["reason"]) == (repr(given), "as given")


@pytest.mark.parametrize("make", [XMLClassifier, lambda **given: XMLEnsemble(XMLClassifier(**given), 1)])
def test_fit_chooses_unless_a_vectorizer_is_given(make):
    texts, labels = texts_of(of_compounds)
    options = {"max_epochs": 1, "random_state": 0}
    assert make(**options).fit(texts, labels).vectorizer_.analyzer == "char_wb"
    assert make(**options, vectorizer=TextVectorizer()).fit(texts, labels).vectorizer_.analyzer == "word"


def test_fit_names_a_missing_text_and_labels_of_other_length():
    texts, labels = texts_of(of_compounds)
    with pytest.raises(DataError, match="X and Y must have the same number of rows, got 600 and 599"):
        XMLClassifier().fit(texts, labels[1:])
    with pytest.raises(DataError, match="row 7: must be a string, got None"):
        XMLClassifier().fit([*texts[:7], None, *texts[8:]], labels)


FLAGS = [((), "char_wb"), (("--analyzer", "word"), "word"), (("--min-df", "1"), "word")]


@pytest.mark.parametrize(("flags", "analyzer"), FLAGS)
def test_the_command_line_chooses_unless_a_flag_says_how(tmp_path, flags, analyzer):
    texts, labels = texts_of(of_compounds)
    lines = [f"l{label}\t{text}\n" for label, text in zip(labels, texts, strict=True)]
    (tmp_path / "train.txt").write_text("".join(lines))
    store = str(tmp_path / "store")
    assert main(["convert", str(tmp_path / "train.txt"), store, "--format", "raw", *flags]) == 0
    assert TextVectorizer.from_files(store).analyzer == analyzer


def test_rows_must_have_the_features_of_a_fitted_vectorizer():
    vectorizer = TextVectorizer().fit(["one word", "two words"])
    refused = pytest.raises(DataError, match="X: must have the 4 features of the fitted vectorizer, got 5; pass texts")
    with refused:
        XMLClassifier(vectorizer=vectorizer).fit(np.eye(5), np.eye(5))
    model = XMLClassifier(max_epochs=1, random_state=0, n_jobs=1, vectorizer=vectorizer)
    model.fit(["one word", "two words"] * 2, [["a"], ["b"]] * 2)
    with refused:
        model.partial_fit(np.eye(5), [["a"]] * 5)
    with refused:
        model.set_params(warm_start=True).fit(np.eye(5), [["a"], ["b"], ["a"], ["b"], []])
    assert model.partial_fit(np.eye(4), [["a"]] * 4).n_features_in_ == 4
