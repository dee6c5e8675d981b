# Completion of tconv for fish. The words to complete come from tconv itself (--help=words).
function __tconv_column
    tconv --help=words 2>/dev/null | awk -F '\t' -v kind=$argv[1] '$1 == kind { print $2 "\t" $3 }'
end

function __tconv_command
    set -l words (commandline -opc)
    if test (count $words) -gt 1; and contains -- $words[2] (__tconv_column command | cut -f 1)
        echo $words[2]
    else
        echo convert
    end
end

function __tconv_options
    tconv (__tconv_command) --help=words 2>/dev/null | awk -F '\t' '{ print $1 "\t" $4 }'
end

# What the option before the cursor takes: formats or dtypes where its argument is one, else its
# choices.
function __tconv_values
    set -l words (commandline -opc)
    set -l line (tconv (__tconv_command) --help=words 2>/dev/null |
        awk -F '\t' -v option=$words[-1] '$1 == option { print $2 "\t" $3 }')
    switch (string replace -r '\t.*' '' -- "$line")
        case '*FORMAT'
            __tconv_column format
        case '*DTYPE'
            __tconv_column dtype
        case '*'
            string split -n ' ' -- (string replace -r '^[^\t]*\t' '' -- "$line")
    end
end

# The tensors of the first file on the line.
function __tconv_tensors
    for word in (commandline -opc)[3..-1]
        if test -f $word
            tconv list -q -- $word 2>/dev/null
            return
        end
    end
end

complete -c tconv -n __fish_use_subcommand -a '(__tconv_column command)'
complete -c tconv -n 'string match -q -- "-*" (commandline -ct)' -a '(__tconv_options)'
# -k: in the order of the help, the default first.
complete -c tconv -k -a '(__tconv_values)'
complete -c tconv -n 'contains (__tconv_command) get show stats' -a '(__tconv_tensors)'
