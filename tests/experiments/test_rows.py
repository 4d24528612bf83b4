"""Tables of rows: what is written comes back, other programs read it, and damaged files are told."""

from __future__ import annotations

import bz2
import csv
import gzip
import math

import numpy as np
import pandas as pd
import pytest

from sb3_robust_be.experiments.rows import SIGNIFICANT_DIGITS, key_of, read_rows, rounded, write_rows

TEXTS = [
    *(
        "",
        " ",
        "κ = 10",
        "a, b",
        'a "quoted" one',
        '"',
        '""',
        '"quoted"',
        "two\nlines",
        "two\r\nlines",
        "\r",
        "a\rκ",
        "'",
    ),
    *("1", "1.5", "-0", "1e3", " 7", "007", "NaN", "Infinity", "-Infinity", "null", "None", "true", "True", "false"),
    *("[1, 2]", "[", "{}", '{"a": 1}', "nan", "inf", "∞", "=1+1"),
]
NUMBERS = [0, 1, -3, 2**62, 0.0, -0.0, 0.1, 1.0 / 3.0, 1e-300, 1e300, math.inf, -math.inf, math.nan, True, False]
MAPPINGS = [
    {},
    {"learning_rate": 2.0**-10, "target_update_interval": None},
    {"a": math.inf, "b": [1, 2.0, {"c": "x, y"}], "κ": True},
]
ARRAYS = [
    *([], [1], [1.0, math.nan, math.inf, -math.inf, 1.0 / 3.0], [True, False], [3, 2**40], [[1.0, 2.0], [3.0, 4.0]]),
    *([1.0, 2], ["a", "b"]),
]


def round_trip(path, value):
    return read_rows(write_rows(path, [{"before": 1, "value": value, "after": "x"}, {"value": 0}]))[0].get("value")


@pytest.mark.parametrize("text", TEXTS)
def test_text_comes_back_as_text(text, tmp_path):
    assert round_trip(tmp_path / "table", text) == text


@pytest.mark.parametrize("number", NUMBERS)
def test_numbers_come_back_to_the_last_digit(number, tmp_path):
    for value in (number, np.asarray(number)[()]):
        back = round_trip(tmp_path / "table", value)
        assert type(back) is type(number)
        assert back == number or (math.isnan(back) and math.isnan(number))
        assert math.copysign(1, back) == math.copysign(1, number)


@pytest.mark.parametrize("mapping", MAPPINGS)
def test_mappings_come_back(mapping, tmp_path):
    assert round_trip(tmp_path / "table", mapping) == mapping


def test_mappings_of_numpys_numbers_are_pythons(tmp_path):
    mapping = {"a": np.int64(3), "b": np.float32(0.5), "c": np.arange(2), "d": (1, 2)}
    assert round_trip(tmp_path / "table", mapping) == {"a": 3, "b": 0.5, "c": [0, 1], "d": [1, 2]}


@pytest.mark.parametrize("values", ARRAYS, ids=str)
def test_lists_come_back_as_arrays(values, tmp_path):
    back = round_trip(tmp_path / "table", values)
    np.testing.assert_array_equal(back, np.array(values))
    assert back.dtype == np.array(values).dtype
    # Those of several axes are written row by row, as one list.
    np.testing.assert_array_equal(round_trip(tmp_path / "table", np.array(values)), np.array(values).ravel())


def test_rows_that_share_a_list_cannot_spoil_each_others(tmp_path):
    first, second = read_rows(write_rows(tmp_path / "table", [{"curve": [1.0, 2.0]}] * 2))
    with pytest.raises(ValueError, match="read-only"):
        first["curve"][0] = 9.0
    assert second["curve"].tolist() == [1.0, 2.0]


def test_lists_that_are_no_array_stay_lists(tmp_path):
    assert round_trip(tmp_path / "table", [[1], [2, 3]]) == [[1], [2, 3]]


def test_what_is_no_cell_is_refused(tmp_path):
    with pytest.raises(TypeError, match=r"a cell holds .*, of type object; give text, numbers, lists and mappings"):
        write_rows(tmp_path / "table", [{"value": object()}])
    assert not list(tmp_path.iterdir())


def test_what_does_not_exist_is_left_out(tmp_path):
    rows = [{"a": 1, "b": None}, {"c": "x"}, {}]
    assert read_rows(write_rows(tmp_path / "table", rows)) == [{"a": 1}, {"c": "x"}, {}]
    assert read_rows(write_rows(tmp_path / "table", [{"a": None}, {"a": 1}])) == [{}, {"a": 1}]


def test_columns_are_in_order_of_appearance_and_origins_last(tmp_path):
    rows = [{"stage": "reported", "date": "2026-01-02", "final": 1.0}, {"hardware": "a; b", "stage": "x", "auc": 2.0}]
    path = write_rows(tmp_path / "table", rows)
    header = next(csv.reader(path.read_text(encoding="utf-8").splitlines()))
    assert header == ["stage", "final", "auc", "date", "hardware"]


def many_rows(n=400):
    rng = np.random.default_rng(0)
    return [
        {
            "contender": f"κ = {i % 3}, a",
            "seed": i,
            "final": float(rng.normal()),
            "curve": rounded(rng.normal(size=100)),
        }
        for i in range(n)
    ]


def test_the_same_rows_are_the_same_bytes_and_large_ones_compressed(tmp_path):
    small, again = (write_rows(tmp_path / name, many_rows(5)) for name in ("a", "b"))
    assert small.name == "a.csv"
    assert small.read_bytes() == again.read_bytes()
    large, again = (write_rows(tmp_path / name, many_rows()) for name in ("c", "d"))
    assert large.name == "c.csv.bz2"
    assert large.read_bytes() == again.read_bytes()
    assert large.stat().st_size < 0.6 * len(bz2.decompress(large.read_bytes()))


def test_a_table_has_one_file(tmp_path):
    """Whichever of the three it was before; 0.1 wrote the third."""
    for rows in (many_rows(5), many_rows(), many_rows(5), many_rows()):
        path = write_rows(tmp_path / "new" / "table", rows)
        path.with_name("table.csv.gz").write_bytes(b"")
        path = write_rows(tmp_path / "new" / "table", rows)
        assert list(path.parent.iterdir()) == [path]
        assert len(read_rows(path)) == len(rows)


def test_a_table_of_0_1_is_read(tmp_path):
    path = write_rows(tmp_path / "new", many_rows(5))
    (tmp_path / "old.csv.gz").write_bytes(gzip.compress(path.read_bytes()))
    for old, new in zip(read_rows(tmp_path / "old.csv.gz"), read_rows(path), strict=True):
        assert {**old, "curve": old["curve"].tolist()} == {**new, "curve": new["curve"].tolist()}


@pytest.mark.parametrize("n", [5, 400])
def test_pandas_reads_them(n, tmp_path):
    rows = many_rows(n)
    path = write_rows(tmp_path / "table", rows)
    table = pd.read_csv(path, float_precision="round_trip")
    assert table["contender"].tolist() == [row["contender"] for row in rows]
    assert table["seed"].tolist() == list(range(n))
    np.testing.assert_array_equal(table["final"], [row["final"] for row in rows])
    curves = table["curve"].map(lambda text: np.fromstring(text[1:-1], sep=","))
    np.testing.assert_array_equal(np.stack(curves), [row["curve"] for row in rows])


def test_a_cell_may_be_long(tmp_path):
    """Longer than the csv module takes unless told."""
    limit = csv.field_size_limit()
    values = np.random.default_rng(0).normal(size=20_000)
    np.testing.assert_array_equal(round_trip(tmp_path / "table", values), values)
    assert csv.field_size_limit() == limit


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("t.csv", b""),
        ("t.csv", b"a,b\n1,2\n3\n"),
        ("t.csv", b"a,b\n1,2\n3,4,5\n"),
        ("t.csv", b'a,b\n1,"2\n3,4\n'),
        ("t.csv", b"a,b\n1,\xff\n"),
        *(
            (f"t.csv.{ending}", content)
            for ending, compress in (("bz2", bz2.compress), ("gz", gzip.compress))
            for content in (
                b"",
                b"a,b\n1,2\n",
                compress(b"a,b\n" + b"1,2\n" * 100)[:-20],
                compress(b"a,b\n" + b"1,2\n" * 100)[:20] + b"x" * 40,
                compress(b"a,b\n" + b"1,2\n" * 100) + b"more",
            )
        ),
    ],
)
def test_damaged_files_are_told_with_their_path(name, content, tmp_path):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=r"t\.csv.* is no table of results, or damaged: "):
        read_rows(tmp_path / name)


def test_digits_are_significant_ones():
    assert SIGNIFICANT_DIGITS == 6
    values = [123456789.0, 0.00123456789, -1.0 / 3.0, 0.0]
    assert rounded(values).tolist() == [123457000.0, 0.00123457, -0.333333, 0.0]
    found = rounded([[np.nan, np.inf], [-np.inf, 1.0]])
    np.testing.assert_array_equal(found, [[np.nan, np.inf], [-np.inf, 1.0]])


def test_keys_compare_what_rows_say_not_how():
    names = ("contender", "setting", "seed")
    row = {"seed": 1, "setting": {"b": (1, 2), "a": math.inf}, "final": 3.0}
    same = {"contender": None, "setting": {"a": math.inf, "b": [1, 2]}, "seed": np.int64(1)}
    assert key_of(row, names) == key_of(same, names)
    assert hash(key_of(row, names)) == hash(key_of(same, names))
    assert key_of(row, names) != key_of({**row, "setting": {"a": math.inf, "b": [1, 3]}}, names)
