"""Arrays in a file: they come back as they were, or an error says why not."""

import json
import struct
import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from dasksvm.data.array_file import MARK, TAIL, read, write

SOME = {
    "numbers": np.arange(12.0).reshape(3, 4)[:, ::2],
    "names": np.array(["a", "öß", ""]),
    "none": np.zeros((0, 5), np.int32),
    "flag": np.array(True),
    "half": np.float16([1, 2]),
    "big": np.arange(3, dtype=">i4"),
}
ABOUT = {"n": 3, "text": "ä", "list": [1, 2.5, None]}


def test_arrays_come_back(tmp_path):
    path = tmp_path / "file"
    write(path, "some", 2, ABOUT, SOME)
    write(path, "some", 2, ABOUT, SOME)  # replaces
    about, arrays = read(path, "some", (1, 2))
    assert about == ABOUT
    assert list(arrays) == list(SOME)
    for name, array in arrays.items():
        assert np.array_equal(array, SOME[name])
        assert array.shape == SOME[name].shape
        assert array.dtype == SOME[name].dtype.newbyteorder("<")
    assert [file.name for file in tmp_path.iterdir()] == ["file"]


dtypes = st.one_of(hnp.integer_dtypes(), hnp.unsigned_integer_dtypes(), hnp.floating_dtypes(), hnp.boolean_dtypes())


@given(array=hnp.arrays(dtypes, hnp.array_shapes(min_dims=0, min_side=0)))
@settings(max_examples=50)
def test_any_array_comes_back(tmp_path_factory, array):
    path = tmp_path_factory.mktemp("arrays") / "file"
    write(path, "some", 1, {}, {"it": array})
    again = read(path, "some", (1,))[1]["it"]
    assert again.tobytes() == array.astype(array.dtype.newbyteorder("<")).tobytes()
    assert again.shape == array.shape


def test_what_is_not_for_files_leaves_nothing(tmp_path):
    with pytest.raises(TypeError, match="cannot be written to a file"):
        write(tmp_path / "file", "some", 1, {}, {"first": np.ones(3), "it": np.array([None])})
    with pytest.raises(ValueError, match="store long values as arrays"):
        write(tmp_path / "file", "some", 1, {"long": "x" * (1 << 26)}, {})
    assert list(tmp_path.iterdir()) == []


def test_every_torn_or_changed_file_is_an_error(tmp_path):
    path = tmp_path / "file"
    write(path, "some", 1, ABOUT, SOME)
    whole = path.read_bytes()
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        with pytest.raises(ValueError, match=r"begin|complete"):
            read(path, "some", (1,))
    for at in range(len(whole)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x10]) + whole[at + 1 :])
        with pytest.raises(ValueError, match=r"begin|complete|damaged"):
            read(path, "some", (1,))


def forged(path, **changes):
    """Write a file whose table says something else, with the right checksum."""
    write(path, "some", 1, {}, {"it": np.arange(4.0)})
    whole = path.read_bytes()
    start, length, _ = TAIL.unpack(whole[-TAIL.size - len(MARK) : -len(MARK)])
    header = json.loads(whole[start : start + length])
    top = {name: value for name, value in changes.items() if name in header}
    header |= top
    if not top:
        header["arrays"][0] |= changes
    text = json.dumps(header).encode()
    path.write_bytes(whole[:start] + text + TAIL.pack(start, len(text), zlib.crc32(text)) + MARK)


@pytest.mark.parametrize(
    "changes",
    [
        {"shape": [1 << 60]},
        {"shape": [1 << 40, 1 << 40, 0, 3]},
        {"shape": [-4]},
        {"shape": [True]},
        {"shape": "44"},
        {"shape": None},
        {"start": -1},
        {"start": 0},
        {"start": 1 << 70},
        {"dtype": "|O8"},
        {"dtype": "<M8"},
        {"dtype": "<U1"},
        {"dtype": None},
        {"dtype": "<U0", "shape": [1 << 34]},
        {"dtype": "<U8", "shape": [1], "crc32": zlib.crc32(np.arange(4.0).tobytes())},
        {"dtype": "|b1", "shape": [32], "crc32": zlib.crc32(np.arange(4.0).tobytes())},
        {"crc32": "no"},
        {"kind": "other"},
        {"version": 7},
        {"about": [1]},
        {"arrays": [None]},
        {"arrays": 3},
    ],
    ids=str,
)
def test_a_forged_table_is_an_error(tmp_path, changes):
    forged(tmp_path / "file", **changes)
    with pytest.raises(ValueError, match=r"larger|invalid entry|damaged|other|version 7|text|booleans|complete"):
        read(tmp_path / "file", "some", (1,))


def test_arrays_share_no_bytes(tmp_path):
    """Else a table of a million times the same array would take a million times the memory."""
    write(tmp_path / "file", "some", 1, {}, {"first": np.arange(4.0), "other": np.arange(4.0)})
    whole = (tmp_path / "file").read_bytes()
    start, length, _ = TAIL.unpack(whole[-TAIL.size - len(MARK) : -len(MARK)])
    for change in ({"start": len(MARK)}, {"name": "first"}):
        header = json.loads(whole[start : start + length])
        header["arrays"][1] |= change
        text = json.dumps(header).encode()
        tail = TAIL.pack(start, len(text), zlib.crc32(text))
        (tmp_path / "file").write_bytes(whole[:start] + text + tail + MARK)
        with pytest.raises(ValueError, match=r"invalid entry|twice"):
            read(tmp_path / "file", "some", (1,))


@given(content=st.binary(max_size=300), start=st.integers(0, 400), length=st.integers(0, 400))
@settings(max_examples=200)
def test_any_bytes_are_an_error(tmp_path_factory, content, start, length):
    path = tmp_path_factory.getbasetemp() / "fuzz"
    path.write_bytes(MARK + content + struct.pack("<QQI", start, length, zlib.crc32(content)) + MARK)
    with pytest.raises(ValueError, match=r"complete|damaged|Expecting|utf|decode"):
        read(path, "some", (1,))
