"""The parser of LIBSVM text: one pass over the bytes of a block.

It is one function, as separate functions for numbers and labels are slower (docs/decisions/tools.md). Every loop stops
at a newline, and a block ends with one, so that no loop reads past the end although none tests for it.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from ..files.numba_cache import cached

# Codes: what is wrong with a block. `POSITION` is that of the wrong token.
OK, LABEL, LABEL_RANGE, INDEX, INDEX_RANGE, VALUE, FLOAT32, DUPLICATE, SUM = range(9)
# Slots of `out`.
CODE, POSITION, GOT, ROWS, BLANK_TAIL, INEXACT, MAX_FEATURE, MAX_LABEL, ENTRIES, LABELS, N_SLOTS = range(11)

TAB, NEWLINE, RETURN, BLANK, HASH, PLUS, COMMA, MINUS, DOT, ZERO, COLON = (ord(c) for c in "\t\n\r #+,-.0:")
TOO_LARGE = 1 << 40  # an index stops growing here, so that no number of digits overflows int64
MANTISSA_MAX = 900_000_000_000_000_000  # one more digit still fits int64
EXACT_MANTISSA = 1 << 53  # a product or quotient of such a number and 10**22 in float64 is rounded only once
EXACT_EXPONENT = 22
POWERS = np.array([float(f"1e{k}") for k in range(65)])
# Twice the largest error: mantissa, power of ten, product and a cut mantissa are off by less than four roundings.
MARGIN = 2.0**-50
FLOAT32_MIN = np.float32(np.finfo(np.float32).tiny)


@cached
@njit(nogil=True, error_model="numpy")
def parse_block(
    text: np.ndarray,
    limits: np.ndarray,
    inexact_values: np.ndarray,
    X_indptr: np.ndarray,
    X_indices: np.ndarray,
    X_data: np.ndarray,
    Y_indptr: np.ndarray,
    Y_indices: np.ndarray,
    inexact_positions: np.ndarray,
    keys: np.ndarray,
    values: np.ndarray,
    out: np.ndarray,
) -> None:
    """Parse `text` (uint8, ends with a newline) into the rows of X and Y; stop at the first bad token.

    `limits` holds the first feature index, the number of features, the first label, the number of labels, whether
    rows have labels, and whether to add up the values of a feature that occurs twice. The position of a number that
    float64 arithmetic may round to the wrong float32 is written to `inexact_positions`; a second call gets its value in
    `inexact_values`. `keys` and `values` are scratch for rows that are not ascending. `out` has the slots named above.
    """
    first_feature, n_features, first_label, n_labels = limits[0], limits[1], limits[2], limits[3]
    labelled, add_up = limits[4] != 0, limits[5] != 0
    i, size = 0, len(text)
    row, f, l, n_inexact, blank_tail = 0, 0, 0, 0, 0
    max_feature, max_label = np.int64(-1), np.int64(-1)
    code, position, got = OK, 0, np.int64(0)
    X_indptr[0], Y_indptr[0] = 0, 0
    while i < size:
        line = i
        c = text[i]
        while c == BLANK or c == TAB or c == RETURN:
            i += 1
            c = text[i]
        if c == HASH:
            while text[i] != NEWLINE:
                i += 1
            i += 1
            continue
        row_f, row_l = f, l
        if c == NEWLINE:
            blank_tail += 1
        else:
            blank_tail = 0
        # Labels: the first token of a line that does not begin with a blank, unless a colon follows its first number.
        if labelled and i == line and c != NEWLINE:
            ascending, last = True, np.int64(-1)
            while True:
                position, n = i, np.int64(0)
                while ZERO <= c <= ZERO + 9:
                    if n < TOO_LARGE:
                        n = n * 10 + (c - ZERO)
                    i += 1
                    c = text[i]
                if c == COLON and position == line and i > line:
                    i = line
                    c = text[i]
                    break
                if i == position or not (
                    c == COMMA or c == BLANK or c == TAB or c == NEWLINE or c == RETURN or c == HASH
                ):
                    code = LABEL
                    if c == COLON:  # a feature whose index holds a comma
                        code, position = INDEX, line
                    break
                n -= first_label
                if n < 0 or n >= n_labels:
                    code = LABEL_RANGE
                    break
                ascending = ascending and n > last
                last = n
                Y_indices[l] = n
                l += 1
                if c != COMMA:
                    break
                i += 1
                c = text[i]
            if code != OK:
                break
            if not ascending:
                n_keys = l - row_l
                for k in range(n_keys):
                    keys[k] = Y_indices[row_l + k]
                keys[:n_keys].sort()
                l = row_l
                for k in range(n_keys):
                    if k == 0 or keys[k] != keys[k - 1]:
                        Y_indices[l] = keys[k]
                        l += 1
            if l > row_l:
                max_label = max(max_label, np.int64(Y_indices[l - 1]))
        ascending, last = True, np.int64(-1)
        while True:
            while c == BLANK or c == TAB or c == RETURN:
                i += 1
                c = text[i]
            if c == HASH:
                while c != NEWLINE:
                    i += 1
                    c = text[i]
            if c == NEWLINE:
                i += 1
                break
            position, n = i, np.int64(0)
            while ZERO <= c <= ZERO + 9:
                if n < TOO_LARGE:
                    n = n * 10 + (c - ZERO)
                i += 1
                c = text[i]
            if i == position or c != COLON:
                code = INDEX
                break
            n -= first_feature
            if n < 0 or n >= n_features:
                code = INDEX_RANGE
                break
            i += 1
            c = text[i]
            negative = c == MINUS
            if negative or c == PLUS:
                i += 1
                c = text[i]
            mantissa, exponent, cut, start = np.int64(0), 0, False, i
            while ZERO <= c <= ZERO + 9:
                if mantissa < MANTISSA_MAX:
                    mantissa = mantissa * 10 + (c - ZERO)
                else:
                    exponent += 1
                    cut = True
                i += 1
                c = text[i]
            digits = i - start
            if c == DOT:
                i += 1
                c = text[i]
                start = i
                while ZERO <= c <= ZERO + 9:
                    if mantissa < MANTISSA_MAX:
                        mantissa = mantissa * 10 + (c - ZERO)
                        exponent -= 1
                    else:
                        cut = True
                    i += 1
                    c = text[i]
                digits += i - start
            if digits > 0 and (c == 101 or c == 69):  # e, E
                i += 1
                c = text[i]
                down = c == MINUS
                if down or c == PLUS:
                    i += 1
                    c = text[i]
                start, power = i, 0
                while ZERO <= c <= ZERO + 9:
                    if power < 100_000_000:
                        power = power * 10 + (c - ZERO)
                    i += 1
                    c = text[i]
                if i == start:
                    digits = 0
                exponent += -power if down else power
            if digits == 0 or not (c == BLANK or c == NEWLINE or c == TAB or c == RETURN or c == HASH):
                code = VALUE
                break
            wide = np.float64(mantissa)
            value = np.float32(0.0)
            if mantissa != 0:
                if 0 <= -exponent <= 64:
                    wide /= POWERS[-exponent]
                elif 0 < exponent <= 64:
                    wide *= POWERS[exponent]
                value = np.float32(wide)
                if cut or mantissa > EXACT_MANTISSA or exponent < -EXACT_EXPONENT or exponent > EXACT_EXPONENT:
                    sure = -64 <= exponent <= 64
                    if not sure or np.float32(wide * (1 - MARGIN)) != np.float32(wide * (1 + MARGIN)):
                        value = inexact_values[n_inexact] if n_inexact < len(inexact_values) else np.float32(0.0)
                        inexact_positions[n_inexact] = position
                        n_inexact += 1
            if value == np.inf:
                code = FLOAT32
                break
            if value < FLOAT32_MIN:
                value = np.float32(0.0)
            X_indices[f] = n
            X_data[f] = -value if negative else value
            f += 1
            ascending = ascending and n > last
            last = n
        if code != OK:
            break
        if not ascending:
            n_keys = f - row_f
            for k in range(n_keys):  # equal features stay in the order of the row, in which they are added up
                keys[k] = (np.int64(X_indices[row_f + k]) << 32) | k
                values[k] = X_data[row_f + k]
            keys[:n_keys].sort()
            f = row_f
            for k in range(n_keys):
                n = keys[k] >> 32
                value = values[keys[k] & 0xFFFFFFFF]
                if f > row_f and X_indices[f - 1] == n:
                    if not add_up:
                        code, position, got = DUPLICATE, line, n
                        break
                    X_data[f - 1] += value
                    if not np.isfinite(X_data[f - 1]):
                        code, position, got = SUM, line, n
                        break
                else:
                    X_indices[f] = n
                    X_data[f] = value
                    f += 1
            if code != OK:
                break
        if f > row_f:
            max_feature = max(max_feature, np.int64(X_indices[f - 1]))
        row += 1
        X_indptr[row] = f
        Y_indptr[row] = l
    out[CODE], out[POSITION], out[GOT] = code, position, got
    out[ROWS], out[BLANK_TAIL], out[INEXACT] = row, blank_tail, n_inexact
    out[MAX_FEATURE], out[MAX_LABEL], out[ENTRIES], out[LABELS] = max_feature, max_label, f, l
