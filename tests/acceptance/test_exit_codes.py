"""The five exit codes of the command, each from real runs that a shell script makes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("exit_codes.sh")
EXPECTED = """
0 no gate asked for
0 the gate is met
0 half of the queries suffice
0 a run file meets the gate
0 as good as the baseline
1 the gate is missed
1 a run file misses the gate
17 the gate is missed, with a code of one's own
2 no arguments
2 a threshold that is none
2 a share above 1
2 a bad file
2 no file
3 no such module
3 a module that fails
3 no such name
4 nothing was measured
4 nothing was measured for the gate
4 too little was measured for the gate
4 less than the coverage asked for
"""


@pytest.mark.slow
def test_F123_every_exit_code_comes_from_a_real_run_in_a_shell_script() -> None:
    bash = shutil.which("bash")
    scripts = Path(sys.executable).parent
    if bash is None or shutil.which("chunkrecall", path=str(scripts)) is None:
        pytest.skip("needs bash and the installed chunkrecall command")
    done = subprocess.run(
        [bash, str(SCRIPT)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}"},
    )
    print(done.stdout)
    print(done.stderr)
    assert done.stdout.split("\n") == EXPECTED.lstrip().split("\n")
    assert "Traceback" not in done.stderr
