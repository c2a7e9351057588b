#!/usr/bin/env python3
"""Checks every #include in src/ against src/LAYERS. Exit 1 names each include that the table forbids."""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
SRC = ROOT / "src"
INCLUDE = re.compile(r'^\s*#\s*include\s+([<"])([^>"]+)[>"]', re.M)
# Which header belongs to which third-party package; a folder may include it only if its line names the package.
PACKAGE_OF = [
    (r"^(fmt)/", "fmt"), (r"^spdlog/", "spdlog"), (r"^nlohmann/", "json"), (r"^CLI/", "cli11"), (r"^toml\+\+/", "toml"),
    (r"^boost/", "boost"), (r"^openssl/", "openssl"), (r"^sqlite3\.h", "sqlite"), (r"^lmdb\.h", "lmdb"),
    (r"^liburing", "uring"), (r"^zstd\.h", "zstd"), (r"^zlib\.h", "zlib"), (r"^png\.h", "png"), (r"^turbojpeg\.h", "jpeg"),
    (r"^webp/", "webp"), (r"^simdjson", "simdjson"), (r"^utf8proc\.h", "utf8proc"), (r"^xxhash\.h", "xxhash"),
    (r"^cuda|^cooperative_groups|^nv/", "cuda"), (r"^dlfcn\.h", "dl"),
]
EVERYWHERE = {"fmt"}  # linked once in base/core, usable by all
MODULES = {"compute/backends/cuda"}  # opened at run time: "*" does not name them


def read_table():
    table, order = {}, []
    for number, line in enumerate((SRC / "LAYERS").read_text().splitlines(), 1):
        line = line.split("#")[0].strip()
        if not line:
            continue
        leaf, _, rest = line.partition(":")
        deps, _, packages = rest.partition("|")
        leaf, deps, packages = leaf.strip(), deps.split(), set(packages.split())
        if deps == ["*"]:
            deps = [leaf for leaf in order if leaf not in MODULES]
        for dep in deps:
            if dep not in order:
                sys.exit(f"src/LAYERS:{number}: {leaf} names {dep}, which does not stand above it")
        table[leaf] = (set(deps) | {leaf}, packages)
        order.append(leaf)
    return table


def main():
    table = read_table()
    errors = []
    for path in sorted(SRC.rglob("*")):
        if path.suffix not in {".h", ".cc", ".cu", ".cuh", ".inc"}:
            continue
        folder = path.parent.relative_to(SRC).as_posix()
        where = path.relative_to(ROOT)
        if folder not in table:
            errors.append(f"{where}: folder {folder} has no line in src/LAYERS")
            continue
        allowed, packages = table[folder]
        is_test = path.stem.endswith(("_test", "_fuzz"))
        for kind, name in INCLUDE.findall(path.read_text(errors="replace")):
            if kind == '"':
                target = name.rsplit("/", 1)[0] if "/" in name else folder
                if target not in allowed:
                    errors.append(f'{where}: may not include "{name}" (see the line of {folder} in src/LAYERS)')
                elif not (SRC / name).exists() and not name.endswith(".inc"):
                    errors.append(f'{where}: "{name}" is not a path from src/')
            else:
                for pattern, package in PACKAGE_OF:
                    if re.match(pattern, name) and package not in packages | EVERYWHERE and not is_test:
                        errors.append(f"{where}: <{name}> needs package {package}, which the line of {folder} does not name")
    for leaf in table:
        folder = SRC / leaf
        if folder.exists() and not any(folder.iterdir()):
            errors.append(f"src/{leaf} is empty")
    print("\n".join(errors) if errors else f"layers: {len(table)} folders, no forbidden include")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
