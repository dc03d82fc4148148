"""A process that is killed, at any moment, leaves a project that opens again with all that was answered."""

import subprocess
import sys

import pytest

from tests.app.project.test_project import seen

PROGRAM = """
import os, random, signal, sys, time
from pathlib import Path

from p3dc.app.project.project import Project
from p3dc.app.project.state import Photo, ProjectLimits, State, new_id
from tests.app.conftest import Mosaic
from tests.app.project.test_project import look

folder, backbone, limits = Path(sys.argv[1]), Mosaic(), ProjectLimits()


def tell(*words):
    os.write(1, (" ".join(map(str, words)) + chr(10)).encode())


def put(project, number):
    photo = Photo(new_id(), str(number), None)
    project.change("Add", lambda state: state.add_photos([photo], limits), {photo.id: look(number)})
    tell("answered", photo.id)


def child(work):
    pid = os.fork()
    if not pid:
        try:
            work()
        finally:
            os._exit(1)
    return pid


def write_on():
    project = Project(folder, backbone, State(), "none")
    tell("holds", *(photo.id for photo in project.state.photos))
    number = 0
    while True:
        put(project, number)
        number += 1


def dies_at(statement):
    project = Project(folder, backbone, State(), "none")
    tell("holds", *(photo.id for photo in project.state.photos))
    left = [statement]

    def count(_):
        left[0] -= 1
        if not left[0]:
            os.kill(os.getpid(), signal.SIGKILL)

    project.store._database.set_trace_callback(count)
    for number in range(2):
        put(project, number)
"""
AT_RANDOM = """
random.seed(int(sys.argv[2]))
output = os.dup(1)
for _ in range(12):
    reading, writing = os.pipe()
    os.dup2(writing, 1)
    pid = child(write_on)
    os.dup2(output, 1)
    os.close(writing)
    with open(reading, "rb") as said:
        for _ in range(random.randint(2, 6)):
            os.write(output, said.readline())
        time.sleep(random.uniform(0, 0.01))
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.write(output, said.read())
"""
AT_EACH_STATEMENT = """
for statement in range(1, 14):
    _, status = os.waitpid(child(lambda: dies_at(statement)), 0)
    tell("signal", os.waitstatus_to_exitcode(status))
"""


def run(rest, *arguments):
    """Run the program and return its lines, each as words."""
    command = [sys.executable, "-c", PROGRAM + rest, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return [line.split() for line in done.stdout.splitlines()]


def check(lines, project):
    """See that all that was answered is there each time the project is opened, and return how often it was."""
    answered, opened = [], 0
    for kind, *words in lines:
        if kind == "holds":
            opened += 1
            assert [identity for identity in words if identity in answered] == answered
            assert len(words) <= len(answered) + opened - 1, (
                "a killed process may leave the one photo more it was adding"
            )
        elif kind == "answered":
            answered += words
    kept = [photo.id for photo in project.state.photos]
    assert [identity for identity in kept if identity in answered] == answered
    assert set(kept) <= set(project.pictures)
    return opened, len(answered)


@pytest.mark.parametrize("seed", [1, 2])
def test_a_process_killed_at_random_loses_nothing_that_was_answered(open_project, tmp_path, seed):
    lines = run(AT_RANDOM, tmp_path, seed)
    project = open_project(tmp_path, priors="none")
    opened, answered = check(lines, project)
    assert opened == 12
    assert answered >= 12


def test_a_process_killed_at_any_statement_leaves_a_change_whole_or_not_there(open_project, tmp_path):
    lines = run(AT_EACH_STATEMENT, tmp_path)
    project = open_project(tmp_path, priors="none")
    opened, answered = check(lines, project)
    assert opened == 13
    assert answered > 5
    assert [words for kind, *words in lines if kind == "signal"].count(["-9"]) > 8
    before = seen(project)
    project.store.close()
    assert seen(open_project(tmp_path, priors="none")) == before
