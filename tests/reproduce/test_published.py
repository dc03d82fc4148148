from p3dc.reproduce import published
from p3dc.reproduce.rows import KEYS, ROWS


def test_numbers_are_those_of_the_paper():
    assert published.table_1("miniImageNet", "p3dc", 1) == (68.68, 0.44)
    assert published.table_1("CUB", "mcl-katz", 5) == (93.08, None)
    assert published.table_1("CUB", "simpleshot", 1) is None
    assert published.table_1("tieredImageNet", "deepvoro++", 5) is None
    assert published.table_1(None, "p3dc", 1) is None
    assert published.table_2("CUB", "dc-nearest") == (79.49, None)
    assert published.table_3("miniImageNet", "p3dc", 20) == (39.33, None)
    assert published.table_3("CUB", "p3dc", 5) is None
    assert published.table_4("tieredImageNet", "mean") == (88.54, None)


def test_every_published_row_is_a_row_or_said_to_be_missing():
    ours = {"p3dc-0-0", "p3dc-1-0", "p3dc-0-1", "p3dc-third", "p3dc", "mcl-katz"}
    assert set(published._TABLE_1) - ours <= set(KEYS)


def test_every_row_says_what_differs():
    assert all(row.remark for row in ROWS)
    assert len({row.key for row in ROWS}) == len(ROWS)
