"""What a wheel holds, and that the template of sessions is found in a checkout as in an unpacked wheel."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
TEMPLATE = sorted(path.name for path in (ROOT / "sessions_template").iterdir() if path.is_file())
ASK = """
import digideep
from digideep.pipeline.layout import template_directory
print(digideep.__file__)
print(template_directory())
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build a wheel of the checkout, without a network and without touching the checkout."""
    directory = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(directory)],
        cwd=ROOT,
        check=True,
        capture_output=True,
        timeout=120,
    )
    (built,) = directory.glob("*.whl")
    return built


def names(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as archive:
        return archive.namelist()


def ask_for_template(directory: Path, *, path: str | None = None) -> tuple[Path, Path]:
    """Return where the package lies and where it finds the template, asked in a process of its own."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    if path is not None:
        environment["PYTHONPATH"] = path
    answer = subprocess.run(
        [sys.executable, "-c", ASK],
        cwd=directory,
        env=environment,
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    )
    package, template = answer.stdout.splitlines()
    return Path(package).parent, Path(template)


def test_wheel_holds_every_module_of_the_package(wheel: Path) -> None:
    modules = {path.relative_to(ROOT).as_posix() for path in (ROOT / "digideep").rglob("*.py")}

    assert modules - set(names(wheel)) == set()


def test_wheel_holds_the_type_marker_and_the_session_template(wheel: Path) -> None:
    expected = {"digideep/py.typed"} | {f"digideep/sessions_template/{name}" for name in TEMPLATE}

    assert {"README.md", "__init__.py", "saam.py"} - set(TEMPLATE) == set()
    assert expected - set(names(wheel)) == set()


def test_wheel_holds_the_package_and_nothing_else(wheel: Path) -> None:
    version = wheel.name.split("-")[1]

    tops = {name.split("/")[0] for name in names(wheel)}

    assert tops == {"digideep", f"digideep-{version}.dist-info"}
    assert [name for name in names(wheel) if "test_" in name or "__pycache__" in name] == []


def test_wheel_names_the_console_script_and_the_license(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (points,) = (name for name in archive.namelist() if name.endswith(".dist-info/entry_points.txt"))
        text = archive.read(points).decode()
    licenses = [name for name in names(wheel) if name.endswith("/LICENSE")]

    assert "digideep = digideep.main:console" in text
    assert len(licenses) == 1


def test_template_is_found_in_an_unpacked_wheel(wheel: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "site")

    package, template = ask_for_template(tmp_path, path=str(tmp_path / "site"))

    assert package == tmp_path / "site" / "digideep"
    assert template == package / "sessions_template"
    for name in TEMPLATE:
        assert (template / name).read_bytes() == (ROOT / "sessions_template" / name).read_bytes()


def test_template_of_a_checkout_is_the_one_at_its_top(tmp_path: Path) -> None:
    package, template = ask_for_template(tmp_path, path=str(ROOT))

    assert package == ROOT / "digideep"
    assert template == ROOT / "sessions_template"


def test_constraints_pin_every_dependency_that_the_scripts_install() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    wanted = {*project["dependencies"], *extras["dev"], *extras["plot"], *extras["video"]}
    lines = (ROOT / "requirements" / "constraints.txt").read_text(encoding="utf-8").splitlines()

    pinned = {line.split("==")[0].lower() for line in lines if "==" in line}

    plain = {item.split(">")[0].lower() for item in wanted if not item.startswith("digideep[")}
    assert plain - pinned == set()
    assert "torch==2.13.0" in lines
