"""Workers end quietly where the JVM has hung up, and report errors where it has not."""

import os
import socket
import sys
from collections.abc import Callable
from io import BufferedReader, BufferedWriter

import pytest

from geoswarm.run.spark.daemon import Serve, until_hung_up


def _end_of(serve: Serve, does: Callable[[socket.socket], None]) -> int:
    """The exit code of a worker process with this main function, after the JVM did something; 9: it went on."""
    ours, theirs = socket.socketpair()
    child = os.fork()
    if not child:
        ours.close()
        try:
            until_hung_up(serve)(os.fdopen(os.dup(theirs.fileno()), "rb"), os.fdopen(os.dup(theirs.fileno()), "wb"))
        except BaseException:
            os._exit(3)
        os._exit(9)
    theirs.close()
    does(ours)
    ours.close()
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _hang_up(jvm: socket.socket) -> None:
    jvm.close()


def _ask(jvm: socket.socket) -> None:
    jvm.send(b"task")


def _ask_and_listen(jvm: socket.socket) -> None:
    jvm.send(b"task")
    while jvm.recv(100):
        pass


def _answer(infile: BufferedReader, outfile: BufferedWriter) -> None:
    infile.read(4)
    outfile.write(b"answer")


def _report_an_error(infile: BufferedReader, outfile: BufferedWriter) -> None:
    infile.read()  # until the JVM hangs up
    outfile.write(b"error")
    sys.exit(-1)


def _fail(infile: BufferedReader, outfile: BufferedWriter) -> None:
    outfile.write(b"error")
    sys.exit(-1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("serve", "does", "code"),
    [
        (_answer, _hang_up, 0),
        (_answer, _ask_and_listen, 9),
        (_report_an_error, _ask, 1),
        (_fail, _ask_and_listen, 3),
    ],
    ids=["no further task", "a task is served", "a cancelled task", "an error with a reader"],
)
def test_a_worker_ends_quietly_only_where_the_jvm_has_hung_up(
    serve: Serve, does: Callable[[socket.socket], None], code: int
) -> None:
    assert _end_of(serve, does) == code
