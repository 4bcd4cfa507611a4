"""Imports run downwards: the layers and packages, and who may use whom."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
# From the lowest layer up; a package may import those to its left and all lower layers.
LAYERS = (
    ("_import_effects", "_typing", "_checks", "_core", "runs", "batching"),
    ("linalg", "statistics"),
    ("attention", "trajectory", "noise", "constructions", "layered", "kernels"),
    ("bounds", "pruning", "regression", "patterns", "induction", "chain_of_thought"),
    ("models", "training"),
    ("bridge",),
    ("microscope",),
    ("__main__",),
)
ORDER = [package for layer in LAYERS for package in layer]
# Packages that stand apart: they import nothing else of the package.
BESIDE = {"plotting"}
# Packages that draw their results, when the user asks for a figure.
DRAWS = {"microscope"}
# Files that call PyTorch when the user asks for it by name: the one that reads its own
# format, and the one that runs a user's model.
USES_TORCH = {"icltheory/models/garg_checkpoint.py", "icltheory/microscope/models.py"}
FILES = sorted((ROOT / "icltheory").rglob("*.py"))


def imported(path):
    """Modules that a file imports, with the line."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield node.module, node.lineno
            if node.module == "icltheory":
                yield from ((f"icltheory.{a.name}", node.lineno) for a in node.names)


def package_of(path):
    part = path.relative_to(ROOT / "icltheory").parts[0]
    return part.removesuffix(".py")


def wrong_imports(path):
    """Each import that a package may not have, and where it stands."""
    package = package_of(path)
    if package == "__init__":
        return
    if package not in ORDER and package not in BESIDE:
        yield f"{package} is in no layer"
        return
    allowed = {package} if package in BESIDE else set(ORDER[: ORDER.index(package) + 1])
    for module, line in imported(path):
        parts = module.split(".")
        foreign = ("experiments", "benchmarks", "tests", "torch", "transformers")
        if parts[0] == "torch" and path.relative_to(ROOT).as_posix() in USES_TORCH:
            continue
        if parts[:2] == ["icltheory", "plotting"] and package in DRAWS:
            continue
        own = parts[0] == "icltheory" and len(parts) > 1
        if parts[0] in foreign or (own and parts[1] not in allowed):
            yield f"{path}:{line} {package} imports {module}"


def test_imports_run_downwards():
    assert len(FILES) > 150
    assert [wrong for path in FILES for wrong in wrong_imports(path)] == []


def test_an_import_upwards_is_found(tmp_path, monkeypatch):
    monkeypatch.setattr(sys.modules[__name__], "ROOT", tmp_path)
    path = tmp_path / "icltheory" / "noise" / "a.py"
    path.parent.mkdir(parents=True)
    path.write_text(
        "import icltheory.linalg\nfrom icltheory import bounds\nimport torch.nn\n"
    )
    found = [wrong.rsplit(" ", 1)[1] for wrong in wrong_imports(path)]
    assert found == ["icltheory.bounds", "torch.nn"]


def test_experiments_import_nothing_private():
    private = [
        f"{path}:{line} {module}"
        for path in sorted((ROOT / "experiments").rglob("*.py"))
        for module, line in imported(path)
        if module.startswith("icltheory.") and "._" in module
    ]
    assert private == []


def test_files_hold_one_idea():
    assert [p for p in FILES if len(p.read_text().splitlines()) > 400] == []


def test_plotting_loads_no_jax():
    loaded = modules_after("import icltheory.plotting")
    assert not {"jax", "matplotlib"} & loaded


def test_importing_the_package_and_its_command_is_light():
    loaded = modules_after("import icltheory.__main__")
    heavy = {"jax", "flax", "matplotlib", "orbax", "optax", "transformers", "torch"}
    assert not heavy & loaded


@pytest.mark.slow
def test_training_loads_no_kernels_and_no_checkpoints_before_they_are_needed():
    loaded = modules_after("import icltheory.models, icltheory.training")
    assert not {"jax.experimental.pallas", "orbax", "tensorstore"} & loaded


@pytest.mark.slow
def test_theory_loads_no_solver_before_it_is_needed():
    loaded = modules_after("import icltheory.regression.flows, icltheory.bounds")
    assert not {"diffrax", "optimistix"} & loaded


def modules_after(statement):
    code = f"import sys; {statement}; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    )
    return set(done.stdout.split())
