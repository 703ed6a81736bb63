# Completion of the weft command for bash: commands, options and their values come from its own --help.
declare -gA _weft_help  # Help texts read so far: libraries behind libfabric take 0.2 s to load.

_weft() {
    local program=$1 current=$2 previous=$3 command= word help
    COMPREPLY=()
    help=${_weft_help[$program]:=$("$program" --help 2>/dev/null)}
    for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
        [[ $word != -* && $help == *Subcommands:* ]] || continue
        command+=" $word"
        help=${_weft_help[$program$command]:=$("$program" $command --help 2>/dev/null)}
    done

    # An option with a value reads "--name TYPE"; a choice reads "--name TYPE:{one,other}".
    if [[ $previous == --* && $help == *" $previous "[[:upper:]][[:upper:]]* ]]; then
        if [[ $help == *" $previous TEXT:{"* ]]; then
            word=${help#*" $previous TEXT:{"}
            word=${word%%\}*}
            mapfile -t COMPREPLY < <(compgen -W "${word//,/ }" -- "$current")
        elif [[ $previous == --root ]]; then
            mapfile -t COMPREPLY < <(compgen -d -- "$current")
        elif [[ $previous == --@(group|journal|report) ]]; then
            mapfile -t COMPREPLY < <(compgen -f -- "$current")
        fi
        return 0
    fi
    if [[ $current == -* ]]; then
        word=$(grep -oE '^ +(-h,)?--[a-z-]+' <<<"$help" | grep -oE -e '--[a-z-]+')
    elif [[ $help == *Subcommands:* ]]; then
        word=$(sed -n '/^Subcommands:/,$s/^  \([a-z]\{1,\}\) .*/\1/p' <<<"$help")
    else
        word=$(sed -n 's/^  [a-z]\{1,\} TEXT:{\([^}]*\)}.*/\1/p' <<<"$help")
        word=${word//,/ }
    fi
    if [[ -n $word ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$word" -- "$current")
    elif [[ $help == *"  file TEXT"* ]]; then
        mapfile -t COMPREPLY < <(compgen -f -- "$current")
    fi
}
complete -o filenames -F _weft weft
