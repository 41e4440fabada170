"""Compiled parsers for lines of CSV and svmlight, which report the position of what they cannot read."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dasksvm.solver.jit import njit

NEWLINE, RETURN, SPACE, TAB, QUOTE, COLON, HASH = 10, 13, 32, 9, 34, 58, 35
ZERO, NINE, POINT, PLUS, MINUS, SMALL_E, LARGE_E = 48, 57, 46, 43, 45, 101, 69
# Roles of the columns of a CSV file that are not features.
LABEL, WEIGHT = -1, -2
# Reasons why a line cannot be read; then the fields of `bad`.
FINE, NOT_A_NUMBER, MISSING, NOT_FINITE, RAGGED, NO_PAIR, INDEX_LOW, INDEX_ORDER, INDEX_HIGH = range(9)
CODE, ROW, LINE, COLUMN, START, STOP = range(6)
# A mantissa with more digits does not fit into 64 bits; powers of ten up to 22 are exact.
DIGITS = 18
# Largest index, as indices are stored in 32 bits.
LARGEST = (1 << 31) - 1
POWERS = 10.0 ** np.arange(23)


@njit()
def parse_number(text: Any, at: int, stop: int) -> tuple[float, int]:  # pragma: no cover
    """Parse text[at:stop] as a decimal number; return its value, exact to an ulp or two, and FINE or what is wrong."""
    while at < stop and (text[at] == SPACE or text[at] == TAB):
        at += 1
    while stop > at and (text[stop - 1] == SPACE or text[stop - 1] == TAB or text[stop - 1] == RETURN):
        stop -= 1
    if at == stop:
        return 0.0, MISSING
    negative = text[at] == MINUS
    if negative or text[at] == PLUS:
        at += 1
    mantissa, digits, exponent, seen, point = 0, 0, 0, 0, False
    while at < stop:
        c = text[at]
        if ZERO <= c <= NINE:
            seen += 1
            if digits < DIGITS:
                mantissa = mantissa * 10 + (c - ZERO)
                digits += mantissa > 0
                exponent -= point
            else:
                exponent += not point
        elif c == POINT and not point:
            point = True
        else:
            break
        at += 1
    if seen == 0:
        return 0.0, NOT_FINITE if _not_finite(text, at, stop) else NOT_A_NUMBER
    if at < stop and (text[at] == SMALL_E or text[at] == LARGE_E):
        at += 1
        sign = 1
        if at < stop and (text[at] == MINUS or text[at] == PLUS):
            sign = -1 if text[at] == MINUS else 1
            at += 1
        power, first = 0, at
        while at < stop and ZERO <= text[at] <= NINE:
            power = min(power * 10 + (text[at] - ZERO), 100000)
            at += 1
        if at == first:
            return 0.0, NOT_A_NUMBER
        exponent += sign * power
    if at != stop:
        return 0.0, NOT_A_NUMBER
    value = float(mantissa)
    if 0 < exponent <= 22:
        value *= POWERS[exponent]
    elif -22 <= exponent < 0:
        value /= POWERS[-exponent]
    elif exponent > 0:
        value = value * 10.0 ** min(exponent, 400) if mantissa else 0.0
    elif exponent < 0:
        value = value / POWERS[22] * 10.0 ** max(exponent + 22, -400)
    if value == np.inf:
        return value, NOT_FINITE
    return (-value if negative else value), FINE


@njit()
def _not_finite(text: Any, at: int, stop: int) -> bool:  # pragma: no cover
    """Return whether text[at:stop] is some spelling of nan or inf."""
    if stop - at < 3:
        return False
    a, b, c = text[at] | 32, text[at + 1] | 32, text[at + 2] | 32
    return (a == 110 and b == 97 and c == 110 and stop - at == 3) or (a == 105 and b == 110 and c == 102)


@njit()
def count(text: Any, byte: int) -> int:  # pragma: no cover
    """Count how often a byte occurs."""
    total = 0
    for c in text:
        total += c == byte
    return total


@njit()
def _fail(bad: Any, code: int, row: int, line: int, column: int, start: int, stop: int) -> int:  # pragma: no cover
    bad[CODE], bad[ROW], bad[LINE], bad[COLUMN], bad[START], bad[STOP] = code, row, line, column, start, stop
    return row


@njit()
def _end_of_field(text: Any, at: int, end: int, delimiter: int) -> int:  # pragma: no cover
    """Return where the field that begins at `at` ends: at a delimiter outside quotes, or at the end of the line."""
    if at < end and text[at] == QUOTE:
        at += 1
        while at < end and not (text[at] == QUOTE and (at + 1 == end or text[at + 1] != QUOTE)):
            at += 2 if text[at] == QUOTE else 1
    while at < end and text[at] != delimiter:
        at += 1
    return at


@njit()
def _end_of_line(text: Any, at: int) -> int:  # pragma: no cover
    while at < len(text) and text[at] != NEWLINE:
        at += 1
    return at


@njit()
def _blank(text: Any, at: int, end: int) -> bool:  # pragma: no cover
    while at < end and (text[at] == SPACE or text[at] == TAB or text[at] == RETURN):
        at += 1
    return at == end


@njit()
def parse_csv(
    text: Any, delimiter: int, roles: Any, X: Any, spans: Any, weight: Any, bad: Any
) -> tuple[int, int]:  # pragma: no cover
    """Fill X (rows × features), the spans of the labels and the weights; return the numbers of rows and lines.

    `roles` has the number of the feature of each column, or LABEL or WEIGHT.
    """
    at, row, line = 0, 0, 0
    while at < len(text):
        end = _end_of_line(text, at)
        if _blank(text, at, end):
            at, line = end + 1, line + 1
            continue
        column = 0
        while True:
            start, stop = at, _end_of_field(text, at, end, delimiter)
            after = stop
            if column < len(roles):
                if stop == end and stop > start and text[stop - 1] == RETURN:
                    stop -= 1
                if stop - start >= 2 and text[start] == QUOTE and text[stop - 1] == QUOTE:
                    start, stop = start + 1, stop - 1
                role = roles[column]
                if role == LABEL:
                    spans[row, 0], spans[row, 1] = start, stop
                else:
                    value, code = parse_number(text, start, stop)
                    if code != FINE:
                        return _fail(bad, code, row, line, column, start, stop), line
                    if role == WEIGHT:
                        weight[row] = value
                    else:
                        X[row, role] = value
            column += 1
            if after >= end:
                break
            at = after + 1
        if column != len(roles):
            return _fail(bad, RAGGED, row, line, column, 0, 0), line
        row, line, at = row + 1, line + 1, end + 1
    return row, line


@njit()
def parse_svmlight(
    text: Any, first: int, width: int, data: Any, indices: Any, indptr: Any, spans: Any, bad: Any
) -> tuple[int, int]:  # pragma: no cover
    """Fill CSR rows and the spans of the labels from `label index:value ...` lines; return the numbers of rows and lines.

    `first` is the smallest index, 0 or 1; `width` is the number of features, or 0 if it is not limited.
    """
    at, row, line, filled = 0, 0, 0, 0
    while at < len(text):
        end = _end_of_line(text, at)
        after, hash_at = end + 1, at
        while hash_at < end and text[hash_at] != HASH:
            hash_at += 1
        end = hash_at
        if _blank(text, at, end):
            at, line = after, line + 1
            continue
        while text[at] == SPACE or text[at] == TAB:
            at += 1
        start, at = at, _end_of_token(text, at, end)
        spans[row, 0], spans[row, 1] = start, at
        last = -1
        while True:
            while at < end and (text[at] == SPACE or text[at] == TAB or text[at] == RETURN):
                at += 1
            if at == end:
                break
            start, at = at, _end_of_token(text, at, end)
            colon = start
            while colon < at and text[colon] != COLON:
                colon += 1
            if at - start > 4 and text[start] == 113 and text[start + 1] == 105 and text[start + 2] == 100:
                continue  # qid:
            index = 0
            for c in text[start:colon]:
                index = min(index * 10 + (c - ZERO), LARGEST) if ZERO <= c <= NINE and index >= 0 else -1
            if colon in (at, start) or index < 0:
                return _fail(bad, NO_PAIR, row, line, -1, start, at), line
            index -= first
            value, code = parse_number(text, colon + 1, at)
            if index < 0:
                code = INDEX_LOW
            elif index <= last:
                code = INDEX_ORDER
            elif index >= width > 0 or index + first >= LARGEST:
                code = INDEX_HIGH
            if code != FINE:
                return _fail(bad, code, row, line, index + first, start, at), line
            last = index
            if value != 0.0:
                data[filled], indices[filled] = value, index
                filled += 1
        indptr[row + 1] = filled
        row, line, at = row + 1, line + 1, after
    return row, line


@njit()
def _end_of_token(text: Any, at: int, end: int) -> int:  # pragma: no cover
    while at < end and text[at] != SPACE and text[at] != TAB and text[at] != RETURN:
        at += 1
    return at


@njit()
def _below_first_line(text: Any) -> tuple[int, int]:  # pragma: no cover
    at, lines = 0, 0
    while at < len(text):
        end = _end_of_line(text, at)
        blank = _blank(text, at, end)
        at, lines = end + 1, lines + 1
        if not blank:
            break
    return min(at, len(text)), lines


def below_first_line(text: NDArray[np.uint8]) -> tuple[NDArray[np.uint8], int]:
    """Return the text below the first line that is not blank, and the number of lines above it."""
    at, lines = _below_first_line(text)
    return text[at:], lines


@njit()
def _copy_spans(text: Any, spans: Any, out: Any) -> None:  # pragma: no cover
    for row in range(len(spans)):
        start, stop = spans[row]
        for at in range(start, stop):
            out[row, at - start] = text[at]


def tokens(text: NDArray[np.uint8], spans: NDArray[np.int64]) -> NDArray[np.bytes_]:
    """Return the parts of a text that the spans delimit."""
    longest = max(int(np.max(spans[:, 1] - spans[:, 0], initial=0)), 1)
    out = np.zeros((len(spans), longest), np.uint8)
    _copy_spans(text, spans, out)
    return out.view(f"S{longest}").ravel()
