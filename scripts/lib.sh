# Shared by the scripts in this directory: they set `here` (the script) and `root` (the checkout), then source this file.
# Needs bash and any Python >= 3.11; everything else is done by environment.py.

case ${DIGIDEEP_VENV:-/} in
    /*) ;;
    *) export DIGIDEEP_VENV=$PWD/$DIGIDEEP_VENV ;; # before a script changes the directory
esac

fail() { # one line, exit 2: something the caller can correct
    printf 'scripts/%s: error: %s\n' "$(basename -- "$here")" "$1" >&2
    exit 2
}

version_of() { # prints "3.11.2" for an interpreter, nothing where it cannot run (a pyenv shim without a version, for one)
    "$1" -c 'import sys; sys.stdout.write("%d.%d.%d" % sys.version_info[:3])' 2>/dev/null || true
}

is_new_enough() { # is_new_enough 3.11.2
    local major=${1%%.*} rest=${1#*.}
    [ "$major" -gt 3 ] || { [ "$major" -eq 3 ] && [ "${rest%%.*}" -ge 11 ]; }
}

find_python() { # sets `python` to the first interpreter that is new enough, or ends the script with one line
    local candidate version found=""
    local candidates=(python3 python3.13 python3.12 python3.11)
    if [ -n "${PYTHON:-}" ]; then candidates=("$PYTHON"); fi
    for candidate in "${candidates[@]}"; do
        version=$(version_of "$candidate")
        [ -n "$version" ] || continue
        if is_new_enough "$version"; then
            python=$candidate
            return
        fi
        found="$found${found:+, }$version ($candidate)"
    done
    fail "Python: expected 3.11 or newer, found ${found:-none}; install one, or name it: PYTHON=/path/to/python3"
}

with_environment() { # with_environment EXTRA [ARGUMENT ...]: becomes the environment's Python with these arguments
    find_python
    local extra=$1
    shift
    exec "$python" -I "$root/scripts/environment.py" --caller "$(basename -- "$here")" --python "$python" \
        --extra "$extra" -- "$@"
}

environment_python() { # environment_python EXTRA: prints the path of the environment's Python
    (with_environment "$1")
}
