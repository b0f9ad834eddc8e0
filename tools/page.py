"""`make page`: build the chat page if its sources have changed.

With --if-possible, as `make serve` calls it: if it cannot be built, only print that.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from tools.node_package import PAGE, CannotBuild, NodePackage


def main(arguments: Sequence[str], page: NodePackage = PAGE) -> int:
    is_optional = "--if-possible" in arguments
    if is_optional and page.missing is not None and not page.is_fresh:
        state = "is older than its sources" if page.is_there else "is not built; the APIs work without it"
        print(f"The chat page {state}. {page.missing}: then run `make page`.")
        return 0
    try:
        was_built = page.build()
    except CannotBuild as problem:
        print(problem, file=sys.stderr)
        return 0 if is_optional else 1
    if was_built or not is_optional:
        print(f"The chat page is {'built' if was_built else 'up to date'}: {page.into}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
