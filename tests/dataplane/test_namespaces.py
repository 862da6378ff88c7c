"""The namespaces of these tests leave nothing behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.dataplane.namespaces import NetworkNamespace, Target

TARGET = Target("tcp", "127.0.0.1", 15001)


class _Trouble(Exception):
    pass


def test_a_namespace_ends_with_its_context_also_where_a_test_fails(tmp_path: Path) -> None:
    processes: list[Path] = []

    def fail() -> None:
        with (
            NetworkNamespace("short-lived", tmp_path) as namespace,
            namespace.serve("server", "word", [TARGET]) as server,
        ):
            processes.extend(Path(f"/proc/{pid}") for pid in (namespace.pid, server.pid))
            assert all(process.exists() for process in processes)
            raise _Trouble

    with pytest.raises(_Trouble):
        fail()

    assert len(processes) == 2
    assert not any(process.exists() for process in processes)


def test_what_listens_in_one_namespace_is_not_there_in_another(tmp_path: Path) -> None:
    with (
        NetworkNamespace("one", tmp_path) as one,
        NetworkNamespace("other", tmp_path) as other,
        one.serve("server", "word", [TARGET]),
    ):
        assert one.ask([TARGET]) == ["word"]
        assert other.ask([TARGET]) == ["refused"]
