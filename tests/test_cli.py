import json
import subprocess
import sys
from pathlib import Path

import numpy as np
from click.testing import CliRunner

from dasksvm.cli import main
from pipelines.compare import measure
from pipelines.rows import environment, write
from pipelines.tasks import Task
from tests.helpers import blobs


def test_quickstart_trains_and_tells():
    result = CliRunner().invoke(main, ["quickstart"])
    assert result.exit_code == 0, result.output
    assert "test error" in result.output
    error = float(result.output.split("test error")[1].split("%")[0])
    assert error < 3.0


def test_module_is_the_command_line():
    done = subprocess.run([sys.executable, "-m", "dasksvm", "--version"], capture_output=True, text=True, check=True)
    assert "0.1.0" in done.stdout


def test_a_comparison_is_a_json_row(tmp_path: Path):
    X, y = blobs(300)
    task = Task("small", X.astype(np.float32), y, X.astype(np.float32), y, {"C": 1.0, "gamma": 0.1})
    for solver in ("lasvc", "sklearn"):
        write(tmp_path / "deep" / "rows.jsonl", measure(solver, task, 10, 0) | environment())
    rows = [json.loads(line) for line in (tmp_path / "deep" / "rows.jsonl").read_text().splitlines()]
    assert [row["solver"] for row in rows] == ["lasvc", "sklearn"]
    assert rows[0]["dual"] <= rows[1]["dual"] * (1 + 1e-4)
    assert all(row["seconds"] > 0 and row["peak_mb"] > 0 and row["cores"] >= 1 for row in rows)
