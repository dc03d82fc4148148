from p3dc.baselines.registry import METHODS
from p3dc.reproduce import published
from p3dc.reproduce.references import REFERENCES


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


def test_every_published_row_is_a_row():
    ours = {"p3dc-0-0", "p3dc-1-0", "p3dc-0-1", "p3dc-third", "p3dc"}
    assert set(published._TABLE_1) - ours <= set(METHODS)


def test_the_names_of_classes_are_compared_whatever_their_order_and_spelling():
    digest = published.class_digest(["Sooty Albatross", "Green Jay"], ["House Wren"])
    assert digest == published.class_digest(["075.Green_Jay", "003.Sooty_Albatross"], ["196.house-wren"])
    assert digest != published.class_digest(["Sooty Albatross", "House Wren"], ["Green Jay"])


def test_every_reference_is_of_its_method():
    for key, text in REFERENCES.items():
        assert METHODS[key].reference[-4:] in text, key
