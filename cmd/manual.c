#include "cmd/manual.h"

#include <stdio.h>
#include <string.h>

#include "cmd/examples.h"
#include "core/base/version.h"
#include "core/tensor/dtype.h"
#include "formats/registry.h"

/* Characters that troff would take for something else, or print as something
 * else: what is copied from a page must be what one types. The ellipsis is not
 * in every terminal's character set. */
static const struct {
    const char *text;
    const char *troff;
} escapes[] = {
    {"\\", "\\e"},  {"-", "\\-"},   {"'", "\\(aq"},          {"`", "\\(ga"},
    {"^", "\\(ha"}, {"~", "\\(ti"}, {"\xe2\x80\xa6", "..."},
};
#define ESCAPES (sizeof escapes / sizeof *escapes)

static void print_escaped(const char *text, size_t length) {
    for (size_t i = 0; i < length;) {
        size_t e = 0;
        while (e < ESCAPES && strncmp(text + i, escapes[e].text, strlen(escapes[e].text)) != 0)
            e++;
        /* A full stop at the start of a line would make it a command. */
        if (text[i] == '.' && (i == 0 || text[i - 1] == '\n'))
            fputs("\\&", stdout);
        if (e < ESCAPES)
            fputs(escapes[e].troff, stdout);
        else
            putchar(text[i]);
        i += e < ESCAPES ? strlen(escapes[e].text) : 1;
    }
}

static void print_line(const char *text) {
    print_escaped(text, strlen(text));
    putchar('\n');
}

/* "convert" of "tconv [convert] [options] IN OUT". */
static void command_name(const char *usage, char *name, size_t size) {
    const char *start = usage + strcspn(usage, " ") + 1;
    start += *start == '[';
    size_t length = strcspn(start, " ]");
    snprintf(name, size, "%.*s", (int)length, start);
}

static void print_head(const char *name, const char *purpose, size_t length) {
    printf(".TH \"");
    for (const char *c = name; *c; c++)
        putchar(*c >= 'a' && *c <= 'z' ? *c - 32 : *c);
    printf("\" 1 \"\" \"tconv " TC_VERSION "\" \"User Commands\"\n.SH NAME\n");
    print_escaped(name, strlen(name));
    fputs(" \\- ", stdout);
    for (size_t i = 0; i < length; i++)
        putchar(purpose[i] == '\n' ? ' ' : purpose[i]);
    putchar('\n');
}

static void print_tail(void) {
    printf(".SH EXIT STATUS\n");
    static const char *const codes[][2] = {
        {"0", "done"},
        {"1",
         "a difference, a failed check, damage found by verify, or something unsafe found by scan"},
        {"2", "usage"},
        {"3", "invalid input: malformed, corrupt, cut short"},
        {"4", "unsupported: well-formed, but nothing tconv handles, or the target can't hold it"},
        {"5", "refused as unsafe, or over a limit"},
        {"6", "I/O error, a missing file, no memory"},
        {"70", "a bug in tconv"},
    };
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
        printf(".TP\n.B %s\n", codes[i][0]);
        print_line(codes[i][1]);
    }
}

static void print_option(const struct option *option) {
    printf(".TP\n");
    if (option->letter)
        printf("\\fB\\-%c\\fR%s", option->letter, option->name ? ", " : "");
    if (option->name) {
        printf("\\fB\\-\\-");
        print_escaped(option->name, strlen(option->name));
        printf("\\fR");
    }
    if (option->argument) {
        printf("%s\\fI", option_is_attached(option) ? "" : " ");
        print_escaped(option->argument, strlen(option->argument));
        printf("\\fR");
    }
    putchar('\n');
    print_line(option->help);
}

static void print_options(const struct option_table *table) {
    printf(".SH OPTIONS\n");
    for (size_t i = 0; i < table->count; i++) {
        const struct option *option = &table->rows[i];
        if (option->type == OPTION_HEADING) {
            printf(".SS \"");
            print_escaped(option->help, strcspn(option->help, ":"));
            printf("\"\n");
        } else {
            print_option(option);
        }
    }
}

static void print_examples(const char *command) {
    const struct example *example = examples_of(command);
    if (!example)
        return;
    printf(".SH EXAMPLES\n");
    for (size_t i = 0; i < EXAMPLES_MOST && example->lines[i].line; i++) {
        printf(".PP\n");
        print_line(example->lines[i].what);
        printf(".PP\n.RS 4\n.EX\n");
        print_line(example->lines[i].line);
        printf(".EE\n.RE\n");
    }
}

void manual_print(const char *usage, const char *what, const struct option_table *table) {
    char command[32];
    char name[48];
    const char *stop = strstr(what, ".");
    command_name(usage, command, sizeof command);
    snprintf(name, sizeof name, "tconv-%s", command);
    print_head(name, what, stop ? (size_t)(stop - what) : strlen(what));
    printf(".SH SYNOPSIS\n.B ");
    print_line(usage);
    printf(".SH DESCRIPTION\n");
    print_line(what);
    print_options(table);
    print_examples(command);
    print_tail();
    printf(".SH SEE ALSO\n.BR tconv (1)\n");
}

static void print_flat(const char *text) {
    for (; *text; text++)
        putchar(*text == '\n' || *text == '\t' ? ' ' : *text);
}

static void print_word(const struct option *option, bool letter) {
    if (letter)
        printf("-%c\t", option->letter);
    else
        printf("--%s\t", option->name);
    printf("%s\t", option->argument ? option->argument : "");
    for (size_t i = 0; option->choices && option->choices[i]; i++)
        printf("%s%s", i ? " " : "", option->choices[i]);
    putchar('\t');
    print_flat(option->help);
    putchar('\n');
}

void manual_print_words(const struct option_table *table) {
    for (size_t i = 0; i < table->count; i++) {
        const struct option *option = &table->rows[i];
        if (option->name)
            print_word(option, false);
        if (option->letter)
            print_word(option, true);
    }
}

static void print_security(void) {
    printf(
        ".SH SECURITY\nBefore it looks at a file a command gives up what it does not need: core "
        "dumps, more memory than\n.B \\-\\-max\\-memory\nand what goes with it, all files but "
        "those beside its inputs and in the folders of its outputs, the network, other programs "
        "and processes.\n.B \\-\\-sandbox=require\nfails where the kernel lacks a part of that,\n"
        ".BR \\-\\-sandbox=auto ,\nthe default, goes without it and tells so with\n.BR \\-v ;\n"
        ".B \\-\\-sandbox=off\nkeeps everything.\n");
}

void manual_print_overview(const struct manual_command *commands, size_t count) {
    static const char purpose[] = "converts tensors between file formats";
    print_head("tconv", purpose, sizeof purpose - 1);
    printf(".SH SYNOPSIS\n.B tconv\n[options] IN OUT\n.br\n.B tconv\n[options] IN IN... \\-o OUT\n"
           ".br\n.B tconv\nCOMMAND [options] ...\n.SH DESCRIPTION\n"
           "Formats are told by content and by the extension of OUT, or named with\n"
           ".BR \\-f \" and \" \\-t .\nNothing in a file is ever run, what a target can't hold is "
           "said, and the output\nappears whole or not at all.\n.SH COMMANDS\n");
    for (size_t i = 0; i < count; i++) {
        printf(".TP\n.BR tconv\\-%s (1)", commands[i].name);
        if (commands[i].usage[0]) {
            printf(" \" ");
            print_escaped(commands[i].usage, strlen(commands[i].usage));
            printf("\"");
        }
        putchar('\n');
        print_line(commands[i].summary);
    }
    printf(".SH FORMATS\n");
    for (size_t i = 0; tc_registry[i]; i++) {
        printf(".TP\n.B %s\n", tc_registry[i]->name);
        print_escaped(tc_registry[i]->summary, strlen(tc_registry[i]->summary));
        for (size_t e = 0; tc_registry[i]->extensions[e]; e++)
            printf("%s %s", e ? "," : ":", tc_registry[i]->extensions[e]);
        putchar('\n');
    }
    print_security();
    printf(".SH ENVIRONMENT\n.TP\n.B TMPDIR\nwhere what is read from a pipe, and what must be read "
           "in another order, is kept; /var/tmp otherwise\n.TP\n.B NO_COLOR\nno colour on a "
           "terminal\n.TP\n.B TCONV_CPU\nforces a set of instructions: plain, avx2\n");
    print_examples("");
    print_tail();
}

void manual_print_all_words(const struct manual_command *commands, size_t count) {
    for (size_t i = 0; i < count; i++)
        printf("command\t%s\t%s\n", commands[i].name, commands[i].summary);
    for (size_t i = 0; tc_registry[i]; i++)
        printf("format\t%s\t%s\n", tc_registry[i]->name, tc_registry[i]->summary);
    for (enum tc_dtype dtype = 0; dtype < TC_DTYPES; dtype++)
        printf("dtype\t%s\t\n", tc_dtype_name(dtype));
}
