"""What the tests of this folder run: packages made from specs, on a GPU, with kernels compiled at first use."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from v4gen.emit.package import emit_packages
from v4gen.emit.write import write_package
from v4gen.plan.plan import make_plan
from v4gen.read.spec import Spec
from v4gen.run.package import Package, imported_package


@pytest.fixture(scope="session")
def load(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[Spec], Package]]:
    """A function that emits the package of a spec, once, writes it to a temporary folder and imports it from there."""
    loaded: dict[str, Package] = {}
    with ExitStack() as stack:

        def load_package(spec: Spec) -> Package:
            key = spec.model_dump_json()
            if key not in loaded:
                (package,) = emit_packages([make_plan(spec)])
                folder = tmp_path_factory.mktemp(spec.name)
                write_package(package, folder)
                loaded[key] = stack.enter_context(imported_package(folder))
            return loaded[key]

        yield load_package
