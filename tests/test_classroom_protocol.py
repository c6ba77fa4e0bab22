"""The conversation with a worker: what is sent arrives as it was; what a stranger sends is read or refused, no more."""

import json
import math
import os
import re
import socket
import struct
import subprocess
import sys
import threading

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from course_lib.classroom.sandbox.protocol import (
    GONE,
    LATE,
    MOST_ARRAYS,
    MOST_TEXT,
    Broken,
    Channel,
    Packer,
    Unpacker,
    frame,
    pack_call,
    pack_outcome,
    unpack_call,
    unpack_outcome,
)
from course_lib.grading.cases import prepare
from course_lib.grading.engine import PUBLIC_SEED
from course_lib.grading.exercise import Given
from course_lib.grading.judge.call import Failure, Outcome
from course_lib.grading.judge.values import Foreign, plain
from course_lib.grading.page.catalogue import EXERCISES

CODE = [exercise for exercise in EXERCISES.values() if exercise.kind in ("code", "experiment")]


def alike(one, other) -> bool:
    """Equal in type, and for tensors in every bit, shape, dtype, strides and whether they want a gradient."""
    if isinstance(one, Given):
        return isinstance(other, Given) and one.make is other.make and alike(one.data, other.data)
    if isinstance(one, torch.Tensor):
        same = (one.shape, one.dtype, one.requires_grad) == (other.shape, other.dtype, other.requires_grad)
        steps = zip(one.shape, one.stride(), other.stride())  # of an axis with one entry the step means nothing
        strides = one.numel() == 0 or all(a == b for size, a, b in steps if size > 1)
        return same and strides and torch.equal(torch.nan_to_num(one), torch.nan_to_num(other))
    if isinstance(one, dict):
        return list(one) == list(other) and all(alike(one[key], other[key]) for key in one)
    if isinstance(one, (tuple, list)):
        return type(one) is type(other) and len(one) == len(other) and all(map(alike, one, other))
    return type(one) is type(other) and (one == other or one != one)


@pytest.mark.parametrize("exercise", CODE, ids=lambda exercise: exercise.id)
def test_every_call_of_the_course_arrives_as_it_was_sent(exercise):
    for trial in prepare(exercise, PUBLIC_SEED):
        told, arrays = pack_call(trial.call)
        call = unpack_call(json.loads(json.dumps(told, allow_nan=False)), memoryview(b"".join(arrays)))
        for field in ("signature", "names", "seed", "probe", "forbidden", "may_change"):
            assert getattr(call, field) == getattr(trial.call, field), f"{exercise.id}: {field}"
        for field in ("args", "init", "weights"):
            assert alike(getattr(trial.call, field), getattr(call, field)), f"{exercise.id}: {field}"


@pytest.mark.parametrize("exercise", CODE, ids=lambda exercise: exercise.id)
def test_every_expected_value_comes_back_as_it_was(exercise):
    for trial in prepare(exercise, PUBLIC_SEED):
        told, arrays = pack_outcome(Outcome(trial.brought))
        back = unpack_outcome(json.loads(json.dumps(told, allow_nan=False)), memoryview(b"".join(arrays)))
        assert alike(plain(contiguous(trial.brought)), back.value), exercise.id


def contiguous(value):
    if isinstance(value, torch.Tensor):
        return value.contiguous()
    if isinstance(value, dict):
        return {key: contiguous(part) for key, part in value.items()}
    return type(value)(map(contiguous, value)) if isinstance(value, (tuple, list)) else value


NUMBERS = st.one_of(st.booleans(), st.integers(-(10**200), 10**200), st.floats(), st.complex_numbers())
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
LEAVES = st.one_of(st.none(), st.just(...), NUMBERS, TEXT, st.builds(Foreign, TEXT))
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.lists(inner, max_size=4).map(tuple), st.dictionaries(TEXT, inner, max_size=4)
    ),
    max_leaves=12,
)


@given(VALUES)
@settings(max_examples=150, deadline=None)
def test_any_plain_value_makes_the_journey(value):
    pack = Packer()
    data = json.loads(json.dumps(pack.value(value), allow_nan=False))
    back = Unpacker(memoryview(b"".join(pack.arrays)), from_worker=True).value(data)
    assert repr(back) == repr(value)


def test_strides_and_shared_memory_arrive_for_inputs_only():
    base = torch.arange(24.0).reshape(2, 3, 4)
    for view in (base.transpose(0, 2), base[:, 1], base[:, :, ::2], base[0, 0].expand(5, 4), torch.ones(0, 3)):
        pack = Packer(strides=True)
        told = pack.value(view)
        back = Unpacker(memoryview(b"".join(pack.arrays)), from_worker=False).value(told)
        assert alike(view, back)
        pack = Packer()
        told = pack.value(view)
        assert "stride" not in told
        assert torch.equal(Unpacker(memoryview(b"".join(pack.arrays)), from_worker=True).value(told), view)


@pytest.mark.parametrize("value", [object(), torch.nn.Linear(1, 1), {1, 2}, Given(max, 1), Given(plain, 1)])
def test_what_is_no_plain_data_is_not_sent(value):
    with pytest.raises(TypeError):
        Packer().value(value)


@pytest.mark.parametrize(
    "name", ["", "max", "builtins.max", "torch.load", "course_lib.grading.fixtures.gpt", "os.system"]
)
def test_a_worker_is_asked_for_nothing_but_what_stands_in_a_fixtures_module(name):
    with pytest.raises(Broken):
        Unpacker(memoryview(b""), from_worker=False).value({"is": "given", "of": [name, "", []]})


def test_what_a_worker_may_be_asked_for_brings_neither_pages_nor_pictures():
    """It is imported before a learner's code runs, in every process that forks workers."""
    script = "import json, sys, course_lib.classroom.sandbox.protocol; print(json.dumps(sorted(sys.modules)))"
    seen = json.loads(subprocess.run([sys.executable, "-c", script], capture_output=True, check=True).stdout)
    of_chapters = [name for name in seen if re.fullmatch(r"course_lib\.chapters\.\w+\..+", name)]
    assert len(of_chapters) > 10
    assert all(name.endswith(".fixtures") for name in of_chapters)
    assert not {"matplotlib", "ipywidgets", "transformers", "IPython"} & set(seen)
    grading = {name.split(".")[2] for name in seen if name.startswith("course_lib.grading.")}
    assert "judge" in grading
    assert not {"page", "mistakes", "kinds"} & grading


HOSTILE = {
    "nested deeply": [[[[[[[[[[[[[[1]]]]]]]]]]]]]],
    "a long list": [0] * 10_001,
    "a huge integer": 1 << 5000,
    "no known tag": {"is": "pickle", "of": "gASVBQAAAAAAAABLAS4="},
    "a Given": {"is": "given", "of": ["course_lib.chapters.feed_forward.fixtures.tinytown", "", []]},
    "a tag that is a list": {"is": ["tensor"]},
    "a float that is none": {"is": "float", "of": "1e9"},
    "a complex that is none": {"is": "complex", "of": ["x", "1"]},
    "an array that is not there": {"is": "tensor", "dtype": "float32", "shape": [3]},
    "a negative size": {"is": "tensor", "dtype": "float32", "shape": [-1]},
    "a size that is a float": {"is": "tensor", "dtype": "float32", "shape": [1.0]},
    "a size that is True": {"is": "tensor", "dtype": "float32", "shape": [True]},
    "an unknown dtype": {"is": "tensor", "dtype": "object", "shape": []},
    "a dtype that is a list": {"is": "tensor", "dtype": [], "shape": []},
    "too many axes": {"is": "tensor", "dtype": "float32", "shape": [1] * 65},
    "a meta tensor without end": {"is": "tensor", "dtype": "float32", "shape": [2**39] * 3, "on": "meta"},
    "a meta tensor behind a zero": {
        "is": "tensor",
        "dtype": "float32",
        "shape": [0, 2**39, 2**39, 2**39],
        "on": "meta",
    },
    "sizes that overflow": {"is": "tensor", "dtype": "float64", "shape": [2**39, 2**39, 2**39]},
    "a list as a key": {"is": "dict", "of": [[[1], 2]]},
    "a pair of three": {"is": "dict", "of": [[1, 2, 3]]},
    "a set of lists": {"is": "set", "of": [[1]]},
    "a foreign number": {"is": "foreign", "of": 3},
}


@pytest.mark.parametrize("data", HOSTILE.values(), ids=HOSTILE)
def test_a_value_that_nobody_would_pack_is_refused(data):
    with pytest.raises(Broken):
        Unpacker(memoryview(b""), from_worker=True).value(data)


JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=8)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(
            st.sampled_from(["is", "of", "dtype", "shape", "on", "stride", "grad", "value", "failure", "changed"])
            | st.text(max_size=4),
            inner | st.sampled_from(["tensor", "dict", "tuple", "set", "complex", "float", "meta", "float32", "given"]),
            max_size=5,
        ),
    ),
    max_leaves=15,
)


@given(JSON, st.binary(max_size=64))
@settings(max_examples=300, deadline=None)
def test_whatever_a_worker_says_is_an_outcome_or_broken(data, arrays):
    try:
        outcome = unpack_outcome(data, memoryview(arrays))
    except Broken:
        return
    assert isinstance(outcome, Outcome)


def test_strides_and_gradients_of_a_worker_are_not_believed():
    told = {"is": "tensor", "dtype": "float32", "shape": [2], "stride": [10**9], "grad": True}
    tensor = Unpacker(memoryview(struct.pack("ff", 1, 2)), from_worker=True).value(told)
    assert tensor.tolist() == [1, 2]
    assert not tensor.requires_grad


def test_a_bool_tensor_holds_nothing_but_true_and_false():
    told = {"is": "tensor", "dtype": "bool", "shape": [3]}
    tensor = Unpacker(memoryview(b"\x00\x01\x7f"), from_worker=True).value(told)
    assert tensor.view(torch.uint8).tolist() == [0, 1, 1]


def test_text_of_a_worker_can_be_written_to_a_file():
    failure = ["raised", "\ud800 lone" * 1000, ""]
    told = {"value": "\udfff", "failure": failure, "changed": ["\ud800"], "forbidden": "", "printed": "", "library": ""}
    outcome = unpack_outcome(told, memoryview(b""))
    for text in (outcome.value, outcome.failure.sentence, outcome.changed[0]):
        text.encode()
    assert len(outcome.failure.sentence) <= 2000


def test_a_value_too_large_for_a_frame_is_named_and_not_sent():
    for value in (torch.zeros(MOST_ARRAYS // 4 + 1), ["x" * 1000] * 5000):
        told, arrays = pack_outcome(Outcome(value))
        assert told["value"]["is"] == "foreign"
        assert arrays == []


def test_a_failure_is_told_with_what_it_needs():
    failure = Failure("raised", "Your function raised ValueError: no", "ValueError no")
    outcome = Outcome(None, failure, ("x",), "softmax", "printed", "attention.softmax", True)
    told, arrays = pack_outcome(outcome)
    back = unpack_outcome(told, memoryview(b"".join(arrays)))
    assert back == outcome


# --- the line ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def ends():
    """The grader's end of a line, and the raw socket of whoever is at the other end."""
    ours, theirs = socket.socketpair()
    fd = ours.detach()
    channel = Channel(fd, fd, from_worker=True)
    yield channel, theirs
    theirs.close()
    channel.close()


def test_messages_arrive_in_order_with_their_arrays(ends):
    channel, other = ends
    other.sendall(frame({"n": 1}, [b"abc"]) + frame({"n": 2}))
    first, arrays = channel.receive(5)
    assert (first["n"], bytes(arrays)) == (1, b"abc")
    assert channel.receive(5)[0]["n"] == 2


def test_a_large_message_passes_while_the_other_side_reads(ends):
    channel, other = ends
    other = Channel(os.dup(other.fileno()), os.dup(other.fileno()), from_worker=False)
    data = os.urandom(5 << 20)
    got = []
    reader = threading.Thread(target=lambda: got.append(bytes(other.receive(20)[1])))
    reader.start()
    channel.send(frame({}, [data]), 20)
    reader.join(20)
    other.close()
    assert got == [data]


LETTERS = {
    "a length beyond the limit": struct.pack(">I", MOST_TEXT + 1) + b"{}",
    "no JSON": struct.pack(">I", 3) + b"abc",
    "NaN": struct.pack(">I", 24) + b'{"x": NaN, "arrays": 0 }',
    "no object": struct.pack(">I", 2) + b"[]",
    "no size of arrays": struct.pack(">I", 2) + b"{}",
    "a negative size": struct.pack(">I", 14) + b'{"arrays": -1}',
    "a size that is True": struct.pack(">I", 16) + b'{"arrays": true}',
    "arrays beyond the limit": (text := json.dumps({"arrays": MOST_ARRAYS + 1}).encode())
    and struct.pack(">I", len(text)) + text,
    "deep JSON": struct.pack(">I", 200_000) + b"[" * 200_000,
    "a number of a million digits": struct.pack(">I", 1_000_000) + b"9" * 1_000_000,
    "no UTF-8": struct.pack(">I", 4) + b"\xff\xfe\xfd\xfc",
}


@pytest.mark.parametrize("letter", LETTERS.values(), ids=LETTERS)
def test_a_forged_letter_is_refused(ends, letter):
    channel, other = ends
    writer = threading.Thread(target=lambda: other.sendall(letter), daemon=True)
    writer.start()
    with pytest.raises(Broken):
        channel.receive(20)


@given(st.binary(max_size=200))
@settings(max_examples=150, deadline=None)
def test_any_bytes_are_a_message_or_broken(letter):
    ours, theirs = socket.socketpair()
    fd = ours.detach()
    channel = Channel(fd, fd, from_worker=True)
    theirs.sendall(letter)
    theirs.close()
    try:  # at the latest the end of the line is Broken; what comes before is a message
        for _ in range(len(letter)):
            channel.receive(5)
    except Broken:
        pass
    finally:
        channel.close()


def test_a_line_that_was_hung_up_says_so(ends):
    channel, other = ends
    other.close()
    with pytest.raises(Broken, match=GONE):
        channel.receive(5)


def test_a_drop_now_and_then_does_not_keep_the_deadline_from_coming(ends):
    channel, other = ends
    beats = []
    channel.idle = lambda: (beats.append(1), other.send(b"\0"))  # the sender is as patient as we are
    other.send(struct.pack(">I", 1 << 20))
    with pytest.raises(Broken, match=LATE):
        channel.receive(0.5)
    assert beats


def test_a_side_that_does_not_read_is_not_waited_for(ends):
    channel, _ = ends
    with pytest.raises(Broken, match=LATE):
        channel.send(bytes(64 << 20), 0.3)


def test_infinite_patience_is_allowed(ends):
    channel, other = ends
    other.sendall(frame({"n": 1}))
    assert channel.receive(math.inf)[0]["n"] == 1
