"""A real Kafka broker for tests and benchmarks: one process, on loopback only, in a folder of its own, gone afterwards.

No model of a production set-up: one node is both broker and controller (KRaft), and every internal topic has one
replica. `kill()`, then `start()`, is a crash: ports and data stay. It needs the package confluent-kafka.
"""

import base64
import os
import shutil
import socket
import subprocess
import tempfile
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from geoswarm.errors import MachineError
from geoswarm.lab.crash.servers import ending_with_parent, free_ports
from geoswarm.run.spark.java import find_java

BROKER_JARS = ("org.apache.kafka:kafka_2.13:4.3.1", "org.slf4j:slf4j-simple:1.7.36")
"""The second writes the log, without which the broker fails in silence; it must fit Kafka's slf4j (1.7)."""

START_S_MAX = 90.0
STOP_S_MAX = 20.0
TOPIC_S_MAX = 30.0
PORT_TRIES = 3
LOG_LINES = 30


class Broker:
    def __init__(self, jars: Sequence[Path]) -> None:
        self._classpath = os.pathsep.join(str(jar) for jar in jars)
        self._java = str(find_java().home / "bin" / "java")
        self.folder = Path(tempfile.mkdtemp(prefix="geoswarm-kafka-"))
        self._log = self.folder / "broker.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._ports: tuple[int, int] | None = None

    @property
    def bootstrap(self) -> str:
        if self._ports is None:
            raise MachineError("the broker has no address yet: start it first")
        return f"127.0.0.1:{self._ports[0]}"

    @property
    def pid(self) -> int | None:
        """None while no broker runs."""
        running = self._process is not None and self._process.poll() is None
        return self._process.pid if self._process is not None and running else None

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            error.add_note(f"end of the Kafka broker's log:\n{self.log_tail()}")
        self.close()

    def start(self) -> None:
        """Start, or start again after `kill` or `stop`, and wait until the broker answers."""
        if self.pid is not None:
            return
        if self._ports is not None:
            self._launch()
            return
        for left in reversed(range(PORT_TRIES)):
            broker, controller = free_ports(2)
            self._ports = broker, controller
            self._format()
            try:
                self._launch()
                return
            except MachineError:
                # Between our look and the broker's bind, another process may have taken a port.
                if left == 0 or "Address already in use" not in self.log_tail():
                    raise
                shutil.rmtree(self.folder / "data")

    def create_topic(self, name: str, partitions: int = 1) -> None:
        """Returns when the broker leads every partition, so that a producer can start right away."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        made = admin.create_topics([NewTopic(name, partitions, 1)], request_timeout=TOPIC_S_MAX)
        made[name].result(TOPIC_S_MAX)
        deadline_s = time.monotonic() + TOPIC_S_MAX
        while time.monotonic() < deadline_s:
            topic = admin.list_topics(name, timeout=TOPIC_S_MAX).topics[name]
            leaders = [partition.leader for partition in topic.partitions.values()]
            if topic.error is None and leaders == [1] * partitions:
                return
            time.sleep(0.02)
        raise MachineError(f"topic {name} has no leader after {TOPIC_S_MAX:.0f} s:\n{self.log_tail()}")

    def kill(self) -> None:
        """SIGKILL: no goodbye, nothing flushed."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def stop(self) -> None:
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(STOP_S_MAX)
        except subprocess.TimeoutExpired:
            self.kill()

    def close(self) -> None:
        """Stop, and remove every trace."""
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def log_tail(self) -> str:
        if not self._log.exists():
            return "(the broker wrote no log)"
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-LOG_LINES:])

    def _format(self) -> None:
        assert self._ports is not None
        broker, controller = self._ports
        settings = {
            "process.roles": "broker,controller",
            "node.id": 1,
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
            "controller.listener.names": "CONTROLLER",
            "listeners": f"PLAINTEXT://127.0.0.1:{broker},CONTROLLER://127.0.0.1:{controller}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{broker}",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "log.dirs": self.folder / "data",
            "auto.create.topics.enable": "false",  # a misspelt topic is an error in a test
            "offsets.topic.replication.factor": 1,
            "offsets.topic.num.partitions": 1,
            "transaction.state.log.replication.factor": 1,
            "transaction.state.log.min.isr": 1,
            "transaction.state.log.num.partitions": 1,
            "group.initial.rebalance.delay.ms": 0,
            # A killed broker may come back once its old session is over: 9 s by default.
            "broker.session.timeout.ms": 3000,
            "broker.heartbeat.interval.ms": 500,
        }
        (self.folder / "server.properties").write_text("".join(f"{k}={v}\n" for k, v in settings.items()))
        cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()
        done = subprocess.run(
            # `--cluster-id=` as one word: the id may begin with a dash.
            self._command("kafka.tools.StorageTool", "format", f"--cluster-id={cluster}", "--config"),
            capture_output=True,
            text=True,
            timeout=START_S_MAX,
        )
        if done.returncode != 0:
            raise MachineError(f"Kafka's storage cannot be formatted:\n{done.stdout}{done.stderr}")

    def _launch(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                ending_with_parent(self._command("kafka.Kafka")),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.folder,
            )
        deadline_s = time.monotonic() + START_S_MAX
        while time.monotonic() < deadline_s:
            if self._process.poll() is not None:
                code = self._process.returncode
                raise MachineError(f"the Kafka broker ended with code {code} as it started:\n{self.log_tail()}")
            if self._answers():
                return
            time.sleep(0.1)
        self.kill()
        raise MachineError(f"the Kafka broker gave no answer in {START_S_MAX:.0f} s:\n{self.log_tail()}")

    def _answers(self) -> bool:
        """A plain connection first: a Kafka client that meets a closed port waits longer and longer."""
        assert self._ports is not None
        try:
            socket.create_connection(("127.0.0.1", self._ports[0]), timeout=1).close()
            brokers = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0}).list_topics(timeout=2).brokers
        except (OSError, KafkaException):
            return False
        return 1 in brokers

    def _command(self, main: str, *words: str) -> list[str]:
        # Small and quick to start rather than fast: a test sends thousands of messages, not millions.
        jvm = [
            "-Xmx384m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            "-Dorg.slf4j.simpleLogger.showDateTime=true",
        ]
        return [
            self._java,
            *jvm,
            "-cp",
            self._classpath,
            main,
            *words,
            str(self.folder / "server.properties"),
        ]
