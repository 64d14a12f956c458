"""What a URL means, and which files are refused."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from aioqueue.errors import ConfigurationError
from aioqueue.sqlite import make_store
from aioqueue.sqlite._options import network_file_system, read_options


def test_relative_and_absolute_paths() -> None:
    assert read_options("sqlite:///jobs.db", {}).path == Path(os.getcwd()) / "jobs.db"
    assert read_options("sqlite:////var/lib/jobs.db", {}).path == Path("/var/lib/jobs.db")
    assert read_options("sqlite:///a%20b.db", {}).path.name == "a b.db"


@pytest.mark.parametrize("name", ["tenant#1.db", "#", "a#b#c.db", "ä b.db", "a&b=c.db", "semi;colon.db"])
def test_a_path_is_taken_as_it_is_written(name: str) -> None:
    assert read_options(f"sqlite:////d/{name}", {}).path == Path("/d") / name
    assert read_options(f"sqlite:////d/{name}?synchronous=full", {}).synchronous == "full"


def test_what_must_be_encoded_in_a_path_is_told() -> None:
    with pytest.raises(ConfigurationError, match="written as %3F"):
        read_options("sqlite:////d/tenant?1.db", {})
    with pytest.raises(ConfigurationError, match="written as %25"):
        read_options("sqlite:////d/100%.db", {})
    assert read_options("sqlite:////d/tenant%3F1%23100%25.db", {}).path == Path("/d/tenant?1#100%.db")


def test_options_in_the_url_and_beside_it() -> None:
    settings = read_options("sqlite:///x.db?synchronous=FULL&busy_timeout=2.5", {"busy_timeout": 3})
    assert (settings.synchronous, settings.busy_timeout) == ("full", 3.0)
    assert settings.poll_interval == 0.01
    assert read_options("sqlite:///x.db?busy_timeout=500ms", {"poll_interval": "0.02 s"}).busy_timeout == 0.5


@pytest.mark.parametrize(
    "url",
    [
        "sqlite://",
        "sqlite:///",
        "sqlite:///:memory:",
        "sqlite://jobs.db",
        "postgresql:///x",
        "sqlite:///x.db?synchronous=off",
        "sqlite:///x.db?busy_timeout=soon",
        "sqlite:///x.db?busy_timeout=-1",
        "sqlite:///x.db?busy_timeout=0s",
        "sqlite:///x.db?wal_limit=much",
        "sqlite:///x.db?allow_network=perhaps",
        "sqlite:///x.db?sync=full",
        "sqlite:///x%00.db",
    ],
)
def test_what_cannot_be_used_is_refused(url: str) -> None:
    with pytest.raises(ConfigurationError):
        make_store(url)


_MOUNTS = """\
/dev/sda / ext4 rw 0 0
server:/export /srv/shared nfs4 rw 0 0
tmpfs /srv/shared/local tmpfs rw 0 0
//host/share /mnt/with\\040space cifs rw 0 0
me@host:/ /home/me/remote fuse.sshfs rw 0 0
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/data/jobs.db", None),
        ("/srv/shared/jobs.db", "nfs4"),
        ("/srv/shared-not/jobs.db", None),
        ("/srv/shared/local/jobs.db", None),
        ("/mnt/with space/jobs.db", "cifs"),
        ("/home/me/remote/deep/jobs.db", "fuse.sshfs"),
    ],
)
def test_network_file_systems_are_recognised(path: str, kind: str | None) -> None:
    assert network_file_system(Path(path), _MOUNTS) == kind


@pytest.mark.anyio
async def test_a_network_file_system_is_refused_at_open(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aioqueue.sqlite._store.network_file_system", lambda _: "nfs")
    store = make_store(f"sqlite:///{path}")
    with pytest.raises(ConfigurationError, match="nfs"):
        await store.open()
    with pytest.raises(ConfigurationError, match="nfs"):
        await store.migrate()
    allowed = make_store(f"sqlite:///{path}", allow_network=True)
    await allowed.open()
    await allowed.close()
