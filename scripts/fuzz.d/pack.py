"""Puts seeds, dictionaries and options beside the fuzz targets of a folder, as OSS-Fuzz takes them."""

import sys
import zipfile
from pathlib import Path

import dictionaries
import run
import seeds

OPTIONS = "[libfuzzer]\n" + "".join(f"{limit[1:].replace('=', ' = ')}\n" for limit in run.LIMITS)


def main():
    out = Path(sys.argv[1])
    programs = [path for path in sorted(out.glob("fuzz_*")) if not path.suffix and "_seed" not in path.name]
    for program in programs:
        target = program.name.removeprefix("fuzz_")
        dictionaries.write(target, out)
        Path(f"{program}.options").write_text(OPTIONS)
        with zipfile.ZipFile(f"{program}_seed_corpus.zip", "w", zipfile.ZIP_DEFLATED) as archive:
            for number, data in enumerate(seeds.seeds(target)):
                archive.writestr(f"seed-{number:04}", data)
            for path in run.kept_paths(target)[:1]:
                for file in sorted(path.rglob("*")):
                    archive.write(file, file.name)
    print(f"{len(programs)} targets in {out}")
    return 0 if programs else 1


if __name__ == "__main__":
    sys.exit(main())
