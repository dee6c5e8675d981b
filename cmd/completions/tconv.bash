# Completion of tconv for bash. The words to complete come from tconv itself (--help=words).
_tconv_column() { # KIND: words of that kind
    tconv --help=words 2>/dev/null | awk -F '\t' -v kind="$1" '$1 == kind { print $2 }'
}

# What an option takes: formats or dtypes where its argument is one, else its choices.
_tconv_values() { # COMMAND OPTION
    local argument choices
    IFS=$'\t' read -r argument choices < <(tconv "$1" --help=words 2>/dev/null |
        awk -F '\t' -v option="$2" '$1 == option { print $2 "\t" $3 }')
    case $argument in
    *FORMAT) _tconv_column format ;;
    *DTYPE) _tconv_column dtype ;;
    *) printf '%s' "${choices// /$'\n'}" ;;
    esac
}

# The tensors of the first file on the line, behind the command.
_tconv_tensors() {
    local word
    for word in "${COMP_WORDS[@]:2:COMP_CWORD-2}"; do
        if [[ $word != -* && -f $word ]]; then
            tconv list -q -- "$word" 2>/dev/null
            return
        fi
    done
}

_tconv() {
    local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]}
    local command=convert words='' IFS=$'\n'
    # bash makes a word of its own of the equals sign
    if [[ $current == = ]]; then
        current=
    elif [[ $previous == = ]]; then
        previous=${COMP_WORDS[COMP_CWORD - 2]}
    fi
    if ((COMP_CWORD > 1)) && _tconv_column command | grep -qxF -- "${COMP_WORDS[1]}"; then
        command=${COMP_WORDS[1]}
    fi
    if [[ $previous == -* ]]; then
        words=$(_tconv_values "$command" "$previous")
    fi
    if [[ -z $words && $current == -* ]]; then
        words=$(tconv "$command" --help=words 2>/dev/null | cut -f 1)
    elif [[ -z $words && $COMP_CWORD == 1 ]]; then
        words=$(_tconv_column command)
    elif [[ -z $words && $command == @(get|show|stats) ]]; then
        words=$(_tconv_tensors)
    fi
    COMPREPLY=($(compgen -W "${words//\\/\\\\}" -- "$current"))
}
complete -o default -o bashdefault -F _tconv tconv
