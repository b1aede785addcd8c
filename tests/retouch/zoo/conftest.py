from __future__ import annotations

import pytest

from tests.retouch.zoo.tls_server import file_server


@pytest.fixture
def server(tmp_path):
    """Run a TLS server of generated files during a test."""
    folder = tmp_path / "certificates"
    folder.mkdir()
    with file_server(folder) as running:
        yield running
