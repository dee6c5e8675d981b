"""Makes C of the page of `tconv stats --html`: its text before and behind the data.

    embed.py PAGE OUTPUT

The page's policy allows exactly its own style and script, by their hashes.
"""
import base64
import hashlib
import re
import sys


def digest(page: str, pattern: str) -> str:
    text = re.search(pattern, page, re.DOTALL)[1]
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def main(source, target):
    with open(source, encoding="utf-8") as file:
        page = file.read()
    page = page.replace("@STYLE@", digest(page, "<style>(.*?)</style>"))
    page = page.replace("@SCRIPT@", digest(page, "<script>(.*?)</script>"))
    before, behind = page.split("@DATA@")
    with open(target, "w", encoding="ascii") as file:
        file.write('#include "cmd/stats_html.h"\n')
        for name, half in ("stats_page_before", before), ("stats_page_behind", behind):
            codes = ", ".join(map(str, half.encode()))
            file.write(f"const struct tc_text {name} = {{(const char[]){{{codes}, 0}}, {len(half.encode())}}};\n")


main(*sys.argv[1:])
