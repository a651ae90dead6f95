"""The command serve: a process that answers until a signal, and calls that it refuses."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from contextlib import ExitStack
from dataclasses import replace
from http.client import HTTPConnection
from importlib import import_module
from typing import Any
from urllib.request import Request, urlopen

import pytest

from shared.paths import ROOT
from xmlsgd import ModelFileError, XMLClassifier
from xmlsgd.cli import main, run_command
from xmlsgd.cli.commands.serve import ServedFolder, _serve, listening_socket
from xmlsgd.data.files.temporary import sole_use
from xmlsgd.serving import annif_command

pytest.importorskip("uvicorn", reason='needs the extra "serve"')

TEXTS = ["read a file", "write a file"] * 5


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / "words"
    XMLClassifier((4,), max_epochs=2, random_state=0, n_jobs=1).fit(TEXTS, [[t.split()[0]] for t in TEXTS]).save(path)
    return path


@pytest.mark.parametrize("read_by", [{"label_separator": ";"}, {}])
def test_a_served_model_answers_learns_saves_and_ends_by_a_signal(folder, read_by):
    (folder / "train.json").write_text(json.dumps({"P@1": 50, "read_by": read_by}))
    command = [sys.executable, "-m", "xmlsgd", "serve", str(folder), "--port", "0", "--threads", "1", "--save"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "XMLSGD_TOKEN": "a secret token"}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        try:
            name, address = re.fullmatch(r"serving (\S+) at (\S+)\n", process.stdout.readline()).groups()
            assert name == "words"
            with urlopen(Request(f"{address}/v1/projects/words/suggest", b"text=read+it&limit=1")) as answer:
                (best,) = json.load(answer)["results"]
            assert best["label"] in ("read", "write")
            body = json.dumps({"documents": [{"text": "open a file", "labels": ["open"]}]}).encode()
            headers = {"Authorization": "Bearer a secret token", "Content-Type": "application/json"}
            with urlopen(Request(f"{address}/learn", body, headers)) as answer:
                learned = json.load(answer)
            assert (learned["learned"], learned["labels"]) == (1, 3)
        finally:
            process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 128 + signal.SIGTERM
    assert XMLClassifier.load(folder).classes_.tolist() == ["read", "write", "open"]
    assert json.loads((folder / "train.json").read_text()) == {"read_by": read_by}


def test_what_another_process_has_saved_is_not_replaced_by_what_was_learned(folder, tmp_path):
    path = shutil.copytree(folder, tmp_path / "m")
    served_folder = ServedFolder(str(path), {}, None, learns=True)
    learned = served_folder.load().model
    for _ in range(2):
        learned.partial_fit(["close a file"], [["close"]])
        served_folder.save(learned)
    other = XMLClassifier.load(path).partial_fit(["open a file"], [["open"]])
    other.save(path)
    with pytest.raises(ModelFileError, match="m: another process has changed the model meanwhile"):
        served_folder.save(learned)
    assert XMLClassifier.load(path).n_samples_seen_ == other.n_samples_seen_
    served_folder.save(served_folder.load().model)


def test_a_model_that_could_not_be_served_is_not_replaced_by_what_the_earlier_one_learns(folder, tmp_path):
    path = shutil.copytree(folder, tmp_path / "m")
    served_folder = ServedFolder(str(path), {}, None, learns=True)
    served = served_folder.load().model
    XMLClassifier.load(path).partial_fit(["open a file"], [["open"]]).save(path)

    def fail(_):
        raise MemoryError

    with pytest.raises(MemoryError):
        served_folder.load(fail)
    with pytest.raises(ModelFileError, match="m: another process has changed the model meanwhile"):
        served_folder.save(served)


def test_a_model_that_another_process_is_saving_is_not_replaced(folder, tmp_path):
    path = shutil.copytree(folder, tmp_path / "m")
    served_folder = ServedFolder(str(path), {}, None, learns=True)
    with (
        sole_use(path, "m: another process is saving a model there"),
        pytest.raises(ModelFileError, match="m: another process is saving a model there"),
    ):
        served_folder.save(served_folder.load().model)


def test_a_model_that_may_learn_uses_threads_as_asked_and_not_those_of_its_training(folder):
    assert XMLClassifier.load(folder).n_jobs == 1
    assert ServedFolder(str(folder), {}, None, learns=True).load().model.n_jobs is None
    assert ServedFolder(str(folder), {"n_jobs": 2}, None, learns=True).load().model.n_jobs == 2


HEARS_HANGUPS = """
import runpy, signal
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # nohup, which may run these tests, would have it ignored
runpy.run_module("xmlsgd", run_name="__main__")
"""


def test_a_hangup_loads_model_and_excluded_labels_anew_and_a_broken_model_is_not_served(folder, tmp_path):
    """The model is served by a link, which keeps the name of the project when it leads to another model."""
    shutil.copytree(folder, tmp_path / "first")
    (model := tmp_path / "words").symlink_to("first")
    (excluded := tmp_path / "deprecated.txt").write_text("write\n")
    command = [sys.executable, "-c", HEARS_HANGUPS, "serve", str(model), "--port", "0", "--threads", "1"]
    command += ["--exclude", str(excluded)]
    pipes: Any = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, env={**os.environ, "PYTHONPATH": str(ROOT)}, text=True, **pipes) as process:
        try:
            address = process.stdout.readline().split()[-1]

            def served():
                with urlopen(f"{address}/health") as answer:
                    return json.load(answer)

            def labels():
                with urlopen(Request(f"{address}/v1/projects/words/suggest", b"text=a+file")) as answer:
                    return {each["label"] for each in json.load(answer)["results"]}

            assert "write" not in labels()
            assert served()["model"] == "first"
            excluded.write_text("read\n")
            XMLClassifier.load(folder).partial_fit(["a new file"] * 5, [["new"]] * 5).save(tmp_path / "second")
            model.unlink()
            model.symlink_to("second")
            process.send_signal(signal.SIGHUP)
            assert "has it now" in process.stdout.readline()
            assert labels() >= {"write", "new"}
            assert "read" not in labels()
            (model / "model.json").unlink()
            process.send_signal(signal.SIGHUP)
            assert "the model that was loaded before goes on" in process.stderr.readline()
            assert labels() >= {"write", "new"}
            assert "read" not in labels()
            with urlopen(f"{address}/metrics") as counts:
                assert {b"xmlsgd_loads_total 1", b"xmlsgd_load_failures_total 1"} <= {*counts.read().splitlines()}
            assert served()["model"] == "second"
        finally:
            process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 128 + signal.SIGTERM


def begin(address):
    """Open a connection and send the head and one byte of a request; return it and the rest of the body."""
    body = json.dumps({"texts": ["a file"]}).encode()
    host, _, port = address.removeprefix("http://").partition(":")
    connection = HTTPConnection(host, int(port))
    connection.putrequest("POST", "/suggest")
    connection.putheader("Content-Length", str(len(body)))
    connection.endheaders(body[:1])
    return connection, body[1:]


def test_requests_under_way_are_answered_after_a_hangup_by_the_new_model_and_after_sigterm(folder, tmp_path):
    model = tmp_path / "words"
    shutil.copytree(folder, model)
    command = [sys.executable, "-c", HEARS_HANGUPS, "serve", str(model), "--port", "0", "--threads", "1"]
    pipes: Any = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE}
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with ExitStack() as sockets, subprocess.Popen(command, env=environment, text=True, **pipes) as process:
        try:
            address = process.stdout.readline().split()[-1]
            connection, rest = begin(address)
            sockets.callback(connection.close)
            XMLClassifier.load(folder).partial_fit(["a new file"] * 5, [["new"]] * 5).save(model)
            process.send_signal(signal.SIGHUP)
            assert "has it now" in process.stdout.readline()
            connection.send(rest)
            with connection.getresponse() as answer:
                assert "new" in {each["label"] for each in json.load(answer)["results"][0]}
            connection, rest = begin(address)
            idle = HTTPConnection(connection.host, connection.port)
            sockets.callback(connection.close)
            sockets.callback(idle.close)
            idle.request("GET", "/health")
            assert idle.getresponse().read()
        finally:
            process.send_signal(signal.SIGTERM)
        assert idle.sock.recv(1) == b""  # no request comes here, so that the server ends it
        connection.send(rest)
        with connection.getresponse() as answer:
            assert (answer.status, answer.headers["Connection"]) == (200, "close")
        assert process.wait(60) == 128 + signal.SIGTERM


def test_hangups_while_a_model_is_loaded_are_one_more_load():
    loads, handled, release = [], asyncio.Queue(), asyncio.Event()

    async def reload():
        loads.append("begun")
        await release.wait()
        loads.append("done")
        handled.put_nowait(None)

    async def serving():
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGUSR1, handled.put_nowait, None)  # handled after what was sent before it
        for numbers in ([signal.SIGHUP], [signal.SIGHUP] * 3):
            for number in (*numbers, signal.SIGUSR1):
                signal.raise_signal(number)
            await handled.get()
        assert loads == ["begun"]
        release.set()
        await handled.get()
        await handled.get()
        signal.raise_signal(signal.SIGUSR1)
        await handled.get()
        assert loads == ["begun", "done"] * 2

    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    try:
        asyncio.run(_serve(serving(), reload, asyncio.Event()))
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_hangup_before_the_server_is_ready_loads_the_model_again(folder, monkeypatch):
    seen, reloaded = [], asyncio.Event()

    def hung_up(served):
        signal.raise_signal(signal.SIGHUP)

    async def noted(serving, reload, hangup):
        serving.close()
        seen.append(hangup)

    async def reload():
        reloaded.set()

    monkeypatch.setattr("xmlsgd.cli.commands.serve.load_kernels", hung_up)
    monkeypatch.setattr("xmlsgd.cli.commands.serve._serve", noted)
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    try:
        with listening_socket("127.0.0.1", 0) as listening:
            monkeypatch.setattr("xmlsgd.cli.commands.serve.listening_socket", lambda host, port: listening)
            run_command(["serve", str(folder)])
        assert [hangup.is_set() for hangup in seen] == [True]
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_DFL
        asyncio.run(_serve(reloaded.wait(), reload, *seen))
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_hangup_while_packages_are_imported_does_not_end_the_server(folder, monkeypatch):
    def hung_up(name, extra):
        signal.raise_signal(signal.SIGHUP)
        return import_module(name)

    monkeypatch.setattr("xmlsgd.cli.commands.serve.optional_module", hung_up)
    monkeypatch.setattr("xmlsgd.cli.commands.serve.listening_socket", lambda host, port: 1 / 0)
    assert main(["serve", str(folder)]) == 1  # not 129


LOADED = """
import gc, sys
from numba.core.dispatcher import Dispatcher
from xmlsgd import ModelFileError, XMLClassifier
from xmlsgd.cli.commands.serve import load_kernels
from xmlsgd.serving.service import ServedModel
def kernels():
    # `isinstance` would ask a weak proxy, such as those of llvmlite, for the class of what may be gone.
    found = (each for each in gc.get_objects() if issubclass(type(each), Dispatcher))
    return {(each, signature) for each in found for signature in each.overloads}
model = XMLClassifier.load(sys.argv[1])
load_kernels(ServedModel(model))
before = kernels()
model.predict_topk(["read a file", "write", ""] * 17, 10, proba=True)
print(len(before), *{kernel.__name__ for kernel, _ in kernels() - before})
"""


@pytest.mark.filterwarnings("ignore:X. 100% of the rows")
def test_requests_that_come_at_once_find_their_kernels_loaded(tmp_path):
    """Where nothing was compiled yet, they would wait for a minute."""
    texts, labels = TEXTS * 10, [[text.split()[0]] for text in TEXTS * 10]
    model = XMLClassifier((4,), candidates=2, max_epochs=1, random_state=0, n_jobs=1).fit(texts, labels)
    model.save(tmp_path / "model")
    command = [sys.executable, "-c", LOADED, str(tmp_path / "model")]
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": str(ROOT)}, stdout=subprocess.PIPE, check=True)
    n_loaded, *missing = done.stdout.decode().split()
    assert int(n_loaded) > 0
    assert not missing


@pytest.mark.parametrize("token", ["", "a secret token"])
def test_the_precision_that_was_asked_for_is_served(token, folder, monkeypatch):
    served = []
    monkeypatch.setattr("xmlsgd.serving.app.new_app", lambda service, limit: served.append(service))
    monkeypatch.setenv("XMLSGD_TOKEN", token) if token else monkeypatch.delenv("XMLSGD_TOKEN", raising=False)
    model = XMLClassifier.load(folder)
    model.fitted_ = replace(model.fitted_, precision="bfloat16")
    saved = folder.parent / f"bfloat16{len(token)}"
    model.save(saved)
    monkeypatch.setattr("xmlsgd.cli.commands.serve.listening_socket", lambda host, port: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        run_command(["serve", str(saved), "--precision", "float32"])
    assert served[0].model.fitted_.precision == "float32"


def test_the_labels_of_a_file_are_not_served(folder, tmp_path, monkeypatch):
    served = []
    monkeypatch.setattr("xmlsgd.serving.app.new_app", lambda service, limit: served.append(service))
    monkeypatch.setattr("xmlsgd.cli.commands.serve.listening_socket", lambda host, port: 1 / 0)
    (tmp_path / "deprecated.txt").write_text("write\n")
    with pytest.raises(ZeroDivisionError):
        run_command(["serve", str(folder), "--exclude", str(tmp_path / "deprecated.txt")])
    (server,) = served
    (found,) = asyncio.run(server.suggest(server.served, ["write a file"], 10))
    assert {name for name, _ in found} == {*XMLClassifier.load(folder).classes_} - {"write"}


def test_an_answer_does_not_wait_for_an_acknowledgement():
    """The accepted connection inherits the option of the listening socket."""
    with (
        listening_socket("127.0.0.1", 0) as listening,
        socket.create_connection(listening.getsockname()),
        listening.accept()[0] as accepted,
    ):
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0


def complaint(capsys, *words):
    assert main(["serve", *map(str, words)]) == 2
    return capsys.readouterr().err


def test_wrong_calls_are_refused(folder, tmp_path, capsys, monkeypatch):
    monkeypatch.delenv("XMLSGD_TOKEN", raising=False)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert f"--port {port}: Address already in use; pass another" in complaint(capsys, folder, "--port", port)
    assert "--save: needs a token" in complaint(capsys, folder, "--save")
    with monkeypatch.context() as patch:
        patch.setenv("XMLSGD_TOKEN", "short")
        assert "XMLSGD_TOKEN: must be 8 or more" in complaint(capsys, folder)
    XMLClassifier((4,), max_epochs=1, random_state=0, n_jobs=1).fit([[0.0, 1.0], [1.0, 0.0]], [[0], [1]]).save(
        tmp_path / "m"
    )
    assert "must be trained on text" in complaint(capsys, tmp_path / "m")
    monkeypatch.setenv("XMLSGD_TOKEN", "a secret token")
    monkeypatch.chdir(folder)
    assert "--save: " + str(folder) + ": is the current folder and cannot be replaced" in complaint(
        capsys, ".", "--save"
    )


def test_a_token_for_a_model_that_cannot_learn_is_told(folder, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("XMLSGD_TOKEN", "a secret token")
    XMLClassifier.load(folder).save(tmp_path / "m", compact=True)
    told = complaint(capsys, tmp_path / "m")
    assert "m: is compact and cannot be trained further; train it again without compact; or unset XMLSGD_TOKEN" in told
    (tmp_path / "m" / "model.json").unlink()
    assert "unset" not in complaint(capsys, tmp_path / "m")


def test_without_the_extra_its_name_is_told(folder, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    assert 'uvicorn is missing: pip install "xmlsgd[serve]"' in complaint(capsys, folder)


def test_the_command_line_of_annif_names_the_extra_where_annif_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "annif", None)
    with pytest.raises(SystemExit, match=r'^xmlsgd-annif: annif is missing: pip install "xmlsgd\[annif\]"$'):
        annif_command()
