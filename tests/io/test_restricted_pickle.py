import io
import pickle
import pickletools

import pytest

from p3dc.errors import InputError
from p3dc.io.restricted_pickle import OPCODES, STRINGS, LongString, Rules, stand_ins, unpickle

NOTHING = Rules({}, contents="arrays", keys="class")
EXECUTED = {*OPCODES.split(), *STRINGS} - {"BINPERSID"}
REFUSED = {step.name: step.code.encode("latin1") for step in pickletools.opcodes if step.name not in EXECUTED}


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_plain_values_and_containers_are_read(protocol):
    content = {"a": [1, 2.5, None, True, "é" * 600, (1, (2,), ()), 2**80], 3: {"b": -1}, None: []}
    assert unpickle(io.BytesIO(pickle.dumps(content, protocol)), NOTHING) == content


def test_the_file_is_left_where_the_pickle_ends():
    file = io.BytesIO(b"".join(pickle.dumps(value, 4) for value in ("a" * 1000, [2], 3)) + b"rest")
    assert [unpickle(file, NOTHING) for _ in range(3)] == ["a" * 1000, [2], 3]
    assert file.read() == b"rest"


@pytest.mark.parametrize("name", REFUSED)
def test_every_other_opcode_is_refused_by_name(name):
    pickled = b"\x80\x05N" + REFUSED[name] + b"a\nb\n."
    with pytest.raises(InputError, match=f"it takes the step {name}, which arrays and containers do not need"):
        unpickle(io.BytesIO(pickled), NOTHING)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_name_is_refused_unless_it_is_admitted_and_gets_our_function(protocol):
    pickled = pickle.dumps(print, protocol)
    module, name = print.__module__ if protocol > 2 else "__builtin__", "print"
    with pytest.raises(InputError, match=f"it asks for {module}.print, which arrays and containers do not need"):
        unpickle(io.BytesIO(pickled), NOTHING)
    admitted = stand_ins(((module,), name, list))
    found = unpickle(io.BytesIO(pickled), Rules(admitted, contents="arrays", keys="class"))
    assert found is admitted[module, name]
    assert found.function is list


def test_persistent_ids_mean_what_the_rules_make_of_them():
    rules = Rules({}, contents="tensors", keys="tensor", persistent=lambda label: ("storage", label))
    assert unpickle(io.BytesIO(b"\x80\x02K\x07Q."), rules) == ("storage", 7)


def test_long_strings_stay_in_the_file_where_the_rules_say_so():
    file = io.BytesIO(pickle.dumps([b"a" * 600, "é" * 600, "short"], 4))
    rules = Rules({}, contents="arrays", keys="class", long_in_file=True)
    raw, text, short = unpickle(file, rules)
    assert isinstance(raw, LongString)
    assert isinstance(text, LongString)
    assert short == "short"
    assert bytes(raw) == b"a" * len(raw) == b"a" * 600
    assert bytes(text) == b"\xe9" * len(text) == b"\xe9" * 600


@pytest.mark.parametrize("argument", [[None] * 1000, "a" * 1000, b"a" * 1000, (1,) * 1000])
def test_a_pickle_that_copies_its_content_over_and_over_is_refused(argument, monkeypatch):
    """Each call takes a few bytes of the file and makes a thousand."""
    monkeypatch.setattr("p3dc.io.restricted_pickle.SMALL", 2**20)
    copied = []
    rules = Rules(stand_ins((("m",), "copy", copied.append)), contents="arrays", keys="class")
    body = pickle.dumps(argument, 4)[2:-1] + b"\x94"
    start = b"\x80\x04cm\ncopy\nq\xfe" + body + b"q\xff"
    for calls, refused in ((10, False), (40_000, True)):
        file = io.BytesIO(start + b"h\xfeh\xff\x85R0" * calls + b"N.")
        copied.clear()
        if refused:
            with pytest.raises(InputError, match="it copies its content over and over"):
                unpickle(file, rules)
            assert sum(map(len, copied)) <= max(2**20, 16 * len(file.getvalue()))
        else:
            assert unpickle(file, rules) is None
            assert len(copied) == calls
