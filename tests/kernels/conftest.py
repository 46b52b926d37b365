"""What the tests of this folder run: packages made from specs, on the CPU path, with kernels compiled at first use."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
import torch

from v4gen.emit.package import emit_packages
from v4gen.emit.write import write_package
from v4gen.plan.plan import make_plan
from v4gen.read.spec import Spec
from v4gen.run.package import Package, imported_package


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    """The problems are small, and threads that wait on each other cost more than they do."""
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def load(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[Spec], Package]]:
    """A function that emits the package of a spec, writes it to a temporary folder and imports it from there."""
    with ExitStack() as stack:

        def load_package(spec: Spec) -> Package:
            (package,) = emit_packages([make_plan(spec)])
            folder = tmp_path_factory.mktemp(spec.name)
            write_package(package, folder)
            return stack.enter_context(imported_package(folder))

        yield load_package
