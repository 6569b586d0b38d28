"""With a key, Spark's connections and files are encrypted too, and neither key nor secret is where others can look."""

import base64
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

import geoswarm
from class_archive import SHORT_LIFE
from geoswarm.errors import MachineError, SettingsError
from geoswarm.lab.crash.kill import Victim
from geoswarm.lab.crash.scenario import Scenario, compare
from geoswarm.lab.crash.victim import IN_PROCESS
from geoswarm.run.spark.session import ENCRYPTED, SECRET, build_session, check_encrypted, settings
from geoswarm.store.cipher import key_id_of
from geoswarm.store.journal import JournalReader
from geoswarm.store.journal.entries import BatchEntry
from geoswarm.store.key_source import KEY, KEY_FILE, make_key_file
from geoswarm.store.storage import Storage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CLUSTER = "local-cluster[2,1,1024]"
SCENARIO = Scenario(seed=8)


@pytest.fixture
def key_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    make_key_file(tmp_path / "key")
    monkeypatch.setenv(KEY_FILE, str(tmp_path / "key"))
    return tmp_path / "key"


def test_nothing_is_asked_of_spark_without_a_key() -> None:
    assert not set(ENCRYPTED) & set(settings("local[2]"))
    assert ENCRYPTED.items() <= settings("local[2]", {"spark.authenticate": "false"}, encrypts=True).items()


def test_a_session_in_clear_is_refused_once_there_is_a_key(spark: "SparkSession", key_file: Path) -> None:
    with pytest.raises(MachineError, match=r"the Spark session lacks spark.authenticate, spark.network.crypto.enabled"):
        build_session()
    with pytest.raises(MachineError, match="must be stopped first"):
        check_encrypted(spark)


PROGRAM = """
import json, sys
from pathlib import Path
from geoswarm.run.spark.session import SECRET, build_session, check_encrypted

logs = Path(sys.argv[2])
logs.mkdir()
log = {"spark.eventLog.enabled": "true", "spark.eventLog.compress": "false", "spark.eventLog.dir": logs.as_uri()}
spark = build_session(sys.argv[1], conf=log | {"spark.executor.extraJavaOptions": sys.argv[3]})
check_encrypted(spark)
frame = spark.range(1000).repartition(4).mapInArrow(lambda batches: batches, "id long").repartition(3)
rows, total = frame.selectExpr("count(1)", "sum(id)").first()
conf = dict(spark.sparkContext.getConf().getAll())
lines = {}
for file in Path("/proc").glob("[0-9]*/cmdline"):
    try:
        lines[file.parent.name] = file.read_bytes().decode(errors="replace")
    except OSError:
        pass
secret = conf.pop(SECRET, "")
spread = [pid for pid, line in lines.items() if secret and secret in line]
print(json.dumps({"rows": rows, "total": total, "conf": conf, "secret": secret, "spread": spread}))
spark.stop()
"""


@pytest.mark.cluster
def test_a_cluster_runs_encrypted_and_never_shows_its_secrets(key_file: Path, tmp_path: Path) -> None:
    ours = str(Path(geoswarm.__file__).parents[1])
    path = os.pathsep.join(filter(None, [ours, os.environ.get("PYTHONPATH")]))
    text = key_file.read_text().strip()
    environ = {name: value for name, value in os.environ.items() if name != KEY_FILE}
    environ |= {"PYTHONPATH": path, KEY: text}
    command = [sys.executable, "-c", PROGRAM, CLUSTER, str(tmp_path / "events"), SHORT_LIFE]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, env=environ)
    assert done.returncode == 0, done.stderr[-3000:]
    told = json.loads(done.stdout.splitlines()[-1])
    assert (told["rows"], told["total"]) == (1000, 499500)
    assert len(told["secret"]) == 64
    assert told["spread"] == []
    logged = b"".join(file.read_bytes() for file in (tmp_path / "events").rglob("*") if file.is_file())
    assert b"spark.network.crypto.enabled" in logged
    assert told["secret"].encode() not in logged
    for said in (logged, json.dumps(told["conf"]).encode(), done.stderr.encode()):
        assert text.encode() not in said
        assert base64.b64decode(text).hex().encode() not in said


def test_a_secret_that_would_stand_on_a_command_line_is_refused(
    key_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("geoswarm.run.spark.session.SparkSession.getActiveSession", lambda: None)
    with pytest.raises(SettingsError, match=r"put it into spark-defaults\.conf") as raised:
        build_session("spark://nowhere:7077", conf={SECRET: "hush"})
    assert "hush" not in str(raised.value)


@pytest.mark.cluster
def test_an_encrypted_engine_is_killed_and_rebalanced_and_gives_the_oracles_matches(
    key_file: Path, tmp_path: Path
) -> None:
    """Without Spark; `test_kill_moving_plan.py` kills an encrypted engine on it."""
    SCENARIO.write(tmp_path, range(4))
    with Victim(tmp_path, IN_PROCESS, "--round-s", "1", strategies=["swarm-measured"]) as victim:
        victim.start()
        assert victim.until(lambda: victim.commits() >= 1, "the first batch")
        assert victim.kill("driver", np.random.default_rng(0)) > 0
    with Victim(tmp_path, IN_PROCESS, "--round-s", "1", strategies=["per-batch"]) as victim:
        victim.start()
        victim.until_done()
        storage = Storage(str(victim.checkpoint))
        entries = list(JournalReader(storage).read(BatchEntry))
        verdict = compare(SCENARIO, victim.checkpoint, victim.output)
        assert verdict.is_equal, verdict
        assert verdict.pairs > 500
        assert len({entry.plan_epoch for entry in entries}) > 1
        text = key_file.read_text().strip()
        for file in (file for file in victim.home.rglob("*") if file.is_file()):
            data, name = file.read_bytes(), str(file.relative_to(victim.home))
            assert text.encode() not in data, name
            assert base64.b64decode(text) not in data, name
            ours = name.startswith("checkpoint/") and not name.startswith(("checkpoint/spark/", "checkpoint/journal/"))
            assert not ours or name == "checkpoint/lock" or key_id_of(data) is not None, name
            assert not name.startswith("checkpoint/journal/") or b"kind" not in data
