/*
 * What a file is that tconv does not read. Many files with a known extension (.bin)
 * are something else, and naming it helps more than saying what is wrong with it.
 */

#include "formats/foreign.h"

#include <string.h>

#include "core/base/text.h"

static const struct foreign {
    const char *magic;
    uint8_t length;
    uint16_t offset;
    enum tc_class class;
    const char *what;
    const char *hint;
} foreigners[] = {
    {"version https://git-lfs", 23, 0, TC_INVALID, "a git-lfs pointer, not the file itself",
     "fetch the file with: git lfs pull"},
    {"<!DOCTYPE", 9, 0, TC_INVALID, "an HTML page; the download went wrong", NULL},
    {"<!doctype", 9, 0, TC_INVALID, "an HTML page; the download went wrong", NULL},
    {"<html", 5, 0, TC_INVALID, "an HTML page; the download went wrong", NULL},
    {"<HTML", 5, 0, TC_INVALID, "an HTML page; the download went wrong", NULL},
    {"<?xml", 5, 0, TC_INVALID, "an XML document; the download may have gone wrong", NULL},
    {"\x1f\x8b", 2, 0, TC_UNSUPPORTED, "gzip-compressed", "unpack it first with: gzip -d"},
    {"\xfd"
     "7zXZ",
     5, 0, TC_UNSUPPORTED, "xz-compressed", "unpack it first with: xz -d"},
    {"BZh", 3, 0, TC_UNSUPPORTED, "bzip2-compressed", "unpack it first with: bzip2 -d"},
    {"\x28\xb5\x2f\xfd", 4, 0, TC_UNSUPPORTED, "zstd-compressed", "unpack it first with: zstd -d"},
    {"\x04\x22\x4d\x18", 4, 0, TC_UNSUPPORTED, "lz4-compressed", "unpack it first with: lz4 -d"},
    {"7z\xbc\xaf\x27\x1c", 6, 0, TC_UNSUPPORTED, "a 7z archive", "unpack it first"},
    {"Rar!\x1a\x07", 6, 0, TC_UNSUPPORTED, "a RAR archive", "unpack it first"},
    {"ustar", 5, 257, TC_UNSUPPORTED, "a tar archive", "unpack it first with: tar -xf"},
    {"!<arch>\n", 8, 0, TC_UNSUPPORTED, "a library of object files (ar)", NULL},
    {"lmgg", 4, 0, TC_UNSUPPORTED, "a ggml file of early 2023, before GGUF (ggml)", NULL},
    {"fmgg", 4, 0, TC_UNSUPPORTED, "a ggml file of early 2023, before GGUF (ggmf)", NULL},
    {"tjgg", 4, 0, TC_UNSUPPORTED, "a ggml file of 2023, before GGUF (ggjt)", NULL},
    {"\x89HDF\r\n\x1a\n", 8, 0, TC_UNSUPPORTED, "an HDF5 file", NULL},
    {"TFL3", 4, 4, TC_UNSUPPORTED, "a TensorFlow Lite model", NULL},
    {"ORTM", 4, 4, TC_UNSUPPORTED, "an ONNX Runtime model", NULL},
    {"PTMF", 4, 4, TC_UNSUPPORTED, "a PyTorch mobile model", NULL},
    {"ET12", 4, 4, TC_UNSUPPORTED, "an ExecuTorch program", NULL},
    {"\xba\x16\x4f\x2f", 4, 0, TC_UNSUPPORTED, "a fastText model", NULL},
    {"CBM1", 4, 0, TC_UNSUPPORTED, "a CatBoost model", NULL},
    {"binf", 4, 0, TC_UNSUPPORTED, "an XGBoost model", NULL},
    {"\n\x0e\n\x05<unk>", 9, 0, TC_UNSUPPORTED, "a SentencePiece vocabulary", NULL},
    {"\x12\x01\0\0\0\0\0\0", 8, 0, TC_UNSUPPORTED, "an MXNet file of parameters", NULL},
    {"MATLAB 5.0", 10, 0, TC_UNSUPPORTED, "a MATLAB file", NULL},
    {"SQLite format 3", 16, 0, TC_UNSUPPORTED, "an SQLite database", NULL},
    {"PAR1", 4, 0, TC_UNSUPPORTED, "a Parquet file", NULL},
    {"ARROW1", 6, 0, TC_UNSUPPORTED, "an Arrow file", NULL},
    {"FEA1", 4, 0, TC_UNSUPPORTED, "a Feather file", NULL},
    {"Obj\x01", 4, 0, TC_UNSUPPORTED, "an Avro file", NULL},
    {"\x7f"
     "ELF",
     4, 0, TC_UNSUPPORTED, "a program (ELF)", NULL},
    {"\xcf\xfa\xed\xfe", 4, 0, TC_UNSUPPORTED, "a program (Mach-O)", NULL},
    {"\xca\xfe\xba\xbe", 4, 0, TC_UNSUPPORTED, "a program (Java or Mach-O)", NULL},
    {"\0asm", 4, 0, TC_UNSUPPORTED, "a program (WebAssembly)", NULL},
    {"MZ\x90\0", 4, 0, TC_UNSUPPORTED, "a program (Windows)", NULL},
    {"#!", 2, 0, TC_UNSUPPORTED, "a script", NULL},
    {"%PDF-", 5, 0, TC_UNSUPPORTED, "a PDF document", NULL},
    {"\x89PNG\r\n\x1a\n", 8, 0, TC_UNSUPPORTED, "a PNG image", NULL},
    {"\xff\xd8\xff", 3, 0, TC_UNSUPPORTED, "a JPEG image", NULL},
    {"GIF8", 4, 0, TC_UNSUPPORTED, "a GIF image", NULL},
    {"II*\0", 4, 0, TC_UNSUPPORTED, "a TIFF image", NULL},
    {"MM\0*", 4, 0, TC_UNSUPPORTED, "a TIFF image", NULL},
    {"RIFF", 4, 0, TC_UNSUPPORTED, "a RIFF file (sound, video or an image)", NULL},
    {"OggS", 4, 0, TC_UNSUPPORTED, "an Ogg file (sound or video)", NULL},
    {"fLaC", 4, 0, TC_UNSUPPORTED, "a FLAC file (sound)", NULL},
    {"ID3", 3, 0, TC_UNSUPPORTED, "an MP3 file (sound)", NULL},
    {"ftyp", 4, 4, TC_UNSUPPORTED, "an MP4 file (sound or video)", NULL},
    {"\0\1\0\0\0", 5, 0, TC_UNSUPPORTED, "a TrueType font", NULL},
    {"wOF2", 4, 0, TC_UNSUPPORTED, "a web font", NULL},
    {"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", 8, 0, TC_UNSUPPORTED, "an old Office document", NULL},
    {"PK\3\4", 4, 0, TC_UNSUPPORTED, "a zip archive of some other kind", NULL},
    {"\x80\x02", 2, 0, TC_UNSUPPORTED, "a Python pickle", NULL},
    {"\x80\x03", 2, 0, TC_UNSUPPORTED, "a Python pickle", NULL},
    {"\x80\x04", 2, 0, TC_UNSUPPORTED, "a Python pickle", NULL},
    {"\x80\x05", 2, 0, TC_UNSUPPORTED, "a Python pickle", NULL},
};

static const struct foreign *find_at(const struct tc_probe *probe, size_t start) {
    for (size_t i = 0; i < sizeof foreigners / sizeof *foreigners; i++) {
        const struct foreign *foreign = &foreigners[i];
        size_t at = foreign->offset + start;
        if (probe->length >= at + foreign->length &&
            memcmp(probe->head + at, foreign->magic, foreign->length) == 0)
            return foreign;
    }
    return NULL;
}

static size_t count_blanks(const struct tc_probe *probe) {
    size_t blank = 0;
    while (blank < probe->length && memchr(" \t\r\n", probe->head[blank], 4))
        blank++;
    return blank;
}

static const struct foreign *find_foreign(const struct tc_probe *probe) {
    const struct foreign *foreign = find_at(probe, 0);
    size_t blank = count_blanks(probe);
    return foreign || !blank ? foreign : find_at(probe, blank);
}

/* Whether there are printable characters and white space only. The last character
 * may be incomplete, where the file goes on. */
static bool looks_like_text(const struct tc_probe *probe) {
    const char *bytes = (const char *)probe->head;
    size_t at = 0;
    while (at < probe->length) {
        uint32_t character;
        size_t step = tc_utf8_length(bytes + at, probe->length - at, &character);
        if (step == 0)
            return at > 0 && probe->length - at < 4 && probe->length == sizeof probe->head;
        if (character < 0x20 && !strchr("\t\n\r\f", (int)character))
            return false;
        at += step;
    }
    return true;
}

static bool looks_like_json(const struct tc_probe *probe) {
    size_t blank = count_blanks(probe);
    return blank < probe->length && probe->head[blank] == '{';
}

static bool only_zeros(const struct tc_probe *probe) {
    size_t at = 0;
    while (at < probe->length && probe->head[at] == 0)
        at++;
    return at == probe->length;
}

/* Reads a varint at *at, which moves behind it; false where there is none. */
static bool take_varint(const struct tc_probe *probe, size_t *at, uint64_t *value) {
    *value = 0;
    for (unsigned shift = 0; shift < 64 && *at < probe->length; shift += 7) {
        unsigned char byte = probe->head[(*at)++];
        *value |= (uint64_t)(byte & 0x7F) << shift;
        if (!(byte & 0x80))
            return true;
    }
    return false;
}

/* Whether the first bytes are fields with small numbers, one after the other, to the
 * end of the file or beyond these bytes. */
static bool looks_like_protobuf(const struct tc_probe *probe) {
    size_t at = 0;
    unsigned fields = 0;
    uint64_t tag;
    uint64_t length;
    while (at < probe->length) {
        size_t before = at;
        if (!take_varint(probe, &at, &tag))
            return fields >= 3;
        if (tag >> 3 == 0 || tag >> 3 > 1000 || ((tag & 7) > 2 && (tag & 7) != 5))
            return false;
        length = (tag & 7) == 1 ? 8 : (tag & 7) == 5 ? 4 : 0;
        if ((tag & 7) != 1 && (tag & 7) != 5 && !take_varint(probe, &at, &length))
            return fields >= 3;
        if ((tag & 7) == 0)
            length = 0;
        if (length > probe->input->size - at)
            return false;
        fields++;
        if (length > probe->length - at)
            return fields >= 2 && before > 0;
        at += (size_t)length;
    }
    return fields >= 2;
}

/* A guess at a file that has no magic bytes. */
static const char *guess(const struct tc_probe *probe) {
    if (only_zeros(probe))
        return "it starts with zeros only";
    if (looks_like_protobuf(probe))
        return probe->head[0] == 8 && probe->head[1] < 16 && probe->head[2] == 0x12
                   ? "it looks like a protobuf message, perhaps a Core ML model"
                   : "it looks like a protobuf message";
    return "it looks like bare numbers or packed data";
}

bool foreign_recognised(const struct tc_probe *probe) {
    return find_foreign(probe) || probe->length == 0 ||
           (looks_like_text(probe) && !looks_like_json(probe));
}

bool foreign_explain(const struct tc_probe *probe, struct tc_error *error) {
    const struct foreign *foreign = find_foreign(probe);
    if (foreign) {
        bool is_download_error = foreign->class == TC_INVALID;
        tc_fail(error, foreign->class, "wrong-file", "this is %s%s", foreign->what,
                is_download_error ? "" : ", not a format that tconv knows");
        tc_error_because(error, TC_REASON_NO_FORMAT);
        return foreign->hint ? tc_error_hint(error, "%s", foreign->hint) : false;
    }
    if (probe->length == 0)
        tc_fail(error, TC_INVALID, "empty", "the file is empty");
    else if (looks_like_text(probe))
        tc_fail(error, TC_INVALID, "wrong-file",
                "this is a text file, no tensors: not a format that tconv knows");
    else {
        tc_fail(error, TC_INVALID, "unknown-format", "not a format that tconv knows: %s",
                guess(probe));
        tc_error_hint(error, "tconv formats lists what is read; -f FORMAT names one");
    }
    return tc_error_because(error, TC_REASON_NO_FORMAT);
}
