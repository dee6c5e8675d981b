#!/usr/bin/env python3
"""Writes the table of letters that core/base/fold.c replaces, by the Unicode data of this Python.

An entry is a character, its combining class, and what it becomes: decomposed, without case, and
decomposed again. The syllables of Hangul are left out, since they are computed.
"""
import sys
import unicodedata


def folded(character: str) -> str:
    once = unicodedata.normalize("NFD", character).casefold()
    return unicodedata.normalize("NFD", once)


entries, letters = [], []
for code in range(sys.maxunicode + 1):
    if 0xD800 <= code < 0xE000 or 0xAC00 <= code < 0xD7A4:
        continue
    becomes, order = folded(chr(code)), unicodedata.combining(chr(code))
    if becomes != chr(code) or order:
        entries.append(f"    {{{code:#x}, {len(letters)}, {order}, {len(becomes)}}},\n")
        letters += map(ord, becomes)

with open(sys.argv[1], "w") as out:
    out.write('#include "core/base/folded_letters.h"\n\n')
    out.write("const struct tc_folded_letter tc_folded_letters[] = {\n")
    out.writelines(entries)
    out.write(f"}};\nconst size_t tc_folded_letter_count = {len(entries)};\n\n")
    out.write("const uint32_t tc_folded_text[] = {\n")
    out.writelines(f"    {letter:#x},\n" for letter in letters)
    out.write("};\n")
