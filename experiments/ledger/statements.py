"""The statements of the papers, one TOML file per paper, and the tests that check them.

A test names its statements in a mark, ``@pytest.mark.statement("Zhang: Theorem 5.2")``;
``case="W_V*"`` limits it to the cases with such parameters.
"""

import ast
import dataclasses
import fnmatch
import functools
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
IDENTITIES = "tests/identities"
STATUSES = {
    "exact": "is an identity or a definition that holds to rounding",
    "true": "is an inequality or a property with a proof",
    "conditional": "holds under the condition given",
    "vacuous": "says nothing, because its assumption never holds",
    "reconstructed": "has a source whose text is lost or was recalled: the form here "
    "need not be the printed one",
    "false as written": "has a counter-example, and a corrected form where one holds",
    "not implied": "is said to follow from a theorem, and does not",
    "reproduced": "is an observation that was found here, at the published setting or "
    "where the paper names none",
    "not reproduced": "is an observation of which another order, size or direction was "
    "found",
    "impossible in the stated model": "is a figure that no setting of its model gives",
    "not tested at the published setting": "was tested with another model or size, or "
    "not at all",
    "no claim": "is a picture, a list, or a simplification that claims no equality",
}
EVIDENCE = ("proof", "symbolic", "exact arithmetic", "numerical", "simulation", "none")
# These papers come first on the page; the others follow by name.
_FIRST = ("yao", "zhang", "li_icl", "li_cot")


@dataclasses.dataclass(frozen=True)
class Statement:
    """A statement of a paper, named ``author: label`` in the marks of tests."""

    paper: str  # authors and year
    author: str
    label: str  # its number in the paper
    says: str  # what it claims, in a few words, with formulas between dollars
    status: str  # one of STATUSES
    corrected: str = ""  # form or condition under which it holds, or what was found
    evidence: str = "none"  # the strongest kind there is for what the row says
    proof: str = ""  # page#section of docs/reference/derivations
    experiments: tuple[str, ...] = ()  # pages of docs/experiments with stored results
    functions: tuple[str, ...] = ()  # names below icltheory that compute it

    def __post_init__(self):
        for name, known in (("status", STATUSES), ("evidence", EVIDENCE)):
            if (got := getattr(self, name)) not in known:
                words = ", ".join(known)
                raise ValueError(f"{name}: expected one of {words}, got {got!r}")
        if (self.evidence == "proof") != ("#" in self.proof):
            expected = "page#section where the evidence is proof, else nothing"
            raise ValueError(f"proof: expected {expected}, got {self.proof!r}")
        if self.status == "true" and not self.proof:
            raise ValueError(f"proof: expected one for {self.name}, which is true")

    @property
    def name(self) -> str:
        """The name by which tests and lists refer to the statement."""
        return f"{self.author}: {self.label}"


def read(folder: Path) -> tuple[Statement, ...]:
    """Reads the TOML files of a folder, each the statements of one paper in order."""

    def place(path: Path) -> tuple[int, str]:
        return (*_FIRST, path.stem).index(path.stem), path.stem

    found = []
    for path in sorted(folder.glob("*.toml"), key=place):
        document = tomllib.loads(path.read_text())
        for row in document["statement"]:
            row.setdefault("evidence", "proof" if "proof" in row else "none")
            for name in ("experiments", "functions"):
                row[name] = tuple(row.get(name, ()))
            found.append(Statement(document["paper"], document["name"], **row))
    return tuple(found)


STATEMENTS = read(Path(__file__).parent)


# --- tests and their marks, read from the source


def node_names(path: Path, root: Path) -> list[str]:
    """Lists the test functions of a file without running it, as ``path::name``."""
    return list(_marks(path, root))


def _marks(path: Path, root: Path) -> dict[str, list[tuple[str, str]]]:
    """For each test function: the statements of its marks, each with its cases."""
    body = ast.parse(path.read_text()).body
    shared = [
        mark
        for node in body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark"
        for mark in getattr(node.value, "elts", [node.value])
    ]
    return {
        f"{path.relative_to(root).as_posix()}::{node.name}": [
            named
            for mark in [*shared, *node.decorator_list]
            for named in _statements(mark)
        ]
        for node in body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test")
    }


def _statements(mark: ast.expr) -> list[tuple[str, str]]:
    if not isinstance(mark, ast.Call) or not ast.unparse(mark.func).endswith(
        "mark.statement"
    ):
        return []
    case = "".join(ast.literal_eval(word.value) for word in mark.keywords)
    return [(ast.literal_eval(name), case) for name in mark.args]


@functools.cache
def _marked(root: Path) -> dict[str, list[tuple[str, str]]]:
    paths = sorted((root / "tests").rglob("test_*.py"))
    files = [path for path in paths if "mark.statement(" in path.read_text()]
    return {k: v for path in files for k, v in _marks(path, root).items() if v}


def claimed(statement: Statement, root: Path = ROOT) -> list[str]:
    """Lists the test functions that name a statement, as ``path::name``."""
    found = _marked(root).items()
    return [k for k, names in found if statement.name in dict(names)]


def checked_by(case: str, root: Path = ROOT) -> set[str]:
    """The names of the statements that a test case, ``path::name[...]``, checks."""
    function, _, parameters = case.removesuffix("]").partition("[")
    return {
        name
        for name, kept in _marked(root).get(function, ())
        if not kept or fnmatch.fnmatchcase(parameters, kept)
    }


def unknown_names(statements: tuple[Statement, ...], root: Path = ROOT) -> list[str]:
    """Lists the marks that name no statement, as ``path::name: statement``."""
    known = {statement.name for statement in statements}
    pairs = ((test, n) for test, names in _marked(root).items() for n, _ in names)
    return [f"{test}: {name}" for test, name in pairs if name not in known]


def without_mark(root: Path = ROOT) -> list[str]:
    """Lists the identity tests that name no statement."""
    files = sorted((root / IDENTITIES).glob("test_*.py"))
    tests = (name for path in files for name in node_names(path, root))
    return [name for name in tests if name not in _marked(root)]
