#!/usr/bin/env bash
# Finds CUDA on this machine for the Makefile, and prints it as one line of words:
#
#   nvcc=PATH version=13.0 include=DIR... lib=FILE...   enough to build: nvcc and the static runtime
#   code=80,90,100,120                                  the architectures of Duet's GPU code that
#                                                       this nvcc can compile
#   cublas=13.0 nccl=2.27 nvtx=3                        each library that was found, with its
#                                                       include and lib words
#   nvcc=PATH missing=WHAT                              nvcc exists, but WHAT it needs is missing
#   nvcc=PATH old=11.8                                  nvcc exists, but is too old: no version word
#
# With the argument `headers`, for make EMULATION=1, which compiles nothing for a GPU:
#
#   version=emulated include=DIR...                     the folders of cuda_runtime_api.h and cuda.h
#   cublas=13.0 ...                                     the folders of their headers; tests have
#                                                       their own libraries
#
# With `report USE WORD...` it prints the lines of `make` about CUDA: USE is how this build uses it
# (mk/cuda.mk), and the words are what this script found.
#
# It searches CUDA_HOME, the nvcc in PATH, /usr/local/cuda, the system's own folders, and Python
# packages named nvidia-*. It needs no GPU and no driver.
set -u
code=(80 90 100 120) # Ampere and Ada, Hopper, both kinds of Blackwell
oldest=12 # the first major version of CUDA that compiles the C half

report() { # USE WORD...
    local use=$1 word version= nvcc= missing= old= cublas= nccl=
    shift
    for word; do
        case $word in
        version=* | nvcc=* | missing=* | old=* | cublas=* | nccl=*)
            local "${word%%=*}=${word#*=}"
            ;;
        esac
    done
    case $use in
    emulated)
        echo "cuda:      emulated by tests/stand_ins/cuda_emulation: for tests, no hardware"
        ;;
    sanitizer) echo "cuda:      not used: under a sanitizer devices are emulated" ;;
    hardware) echo "cuda:      found $version ($nvcc)" ;;
    given) echo "cuda:      not used: CUDA= was given" ;;
    no_gpu)
        echo "cuda:      found $version ($nvcc), not used: this machine has no GPU (CUDA=1 uses it)"
        ;;
    *)
        if [[ -n $old ]]; then
            echo "cuda:      nvcc $old ($nvcc): too old: CUDA $oldest.0 or newer is needed:" \
                "emulated devices"
        else
            echo "cuda:      ${missing:+nvcc without }${missing:-not found}: emulated devices"
        fi
        ;;
    esac
    case $use in
    emulated | hardware)
        echo "libraries: cublas ${cublas:-not found}, loaded for" \
            "--cuda-math library; nccl ${nccl:-not found}, for --allreduce nccl"
        ;;
    *) echo "libraries: none of CUDA's" ;;
    esac
}
if [[ ${1:-} == report ]]; then
    report "${@:2}"
    exit 0
fi

packages=() # folders of the packages named nvidia-*: .../site-packages/nvidia/cublas and the like
if command -v python3 >/dev/null; then
    mapfile -t packages < <(python3 -c 'import nvidia, os
for root in nvidia.__path__:
    for name in sorted(os.listdir(root)): print(os.path.join(root, name))' 2>/dev/null)
fi

only_headers=$([[ ${1:-} == headers ]] && echo yes)
nvcc=
for candidate in ${CUDA_HOME:+"$CUDA_HOME/bin/nvcc"} "$(command -v nvcc)" \
    /usr/local/cuda/bin/nvcc "${packages[@]/%//bin/nvcc}"; do
    [[ -x $candidate ]] && nvcc=$candidate && break
done
[[ -n $nvcc || $only_headers ]] || exit 0
root=
[[ -n $nvcc ]] && root=$(dirname "$(dirname "$(readlink -f "$nvcc")")")
machine=$(uname -m)
roots=(${CUDA_HOME:+"$CUDA_HOME"} ${root:+"$root"} /usr/local/cuda "${packages[@]}" /usr)
libs=(lib64 lib "targets/$machine-linux/lib" targets/sbsa-linux/lib "lib/$machine-linux-gnu")

header() { # NAME: its folder
    local r
    for r in "${roots[@]}"; do
        [[ -e $r/include/$1 ]] && echo "$r/include" && return
    done
    return 1
}
library() { # NAME...: the first of these files, libx.so or, in a package, libx.so.12 alone
    local r l name
    for r in "${roots[@]}"; do
        for l in "${libs[@]}"; do
            for name in "$@"; do
                for name in "$r/$l/$name" "$r/$l/$name".[0-9]*; do
                    [[ -e $name ]] && echo "$name" && return
                done
            done
        done
    done
    return 1
}
number() { # FILE MACRO: its value
    sed -n "s/^#define  *$2  *\([0-9]*\).*/\1/p" "$1" | head -1
}

include=() lib=() extra=() codes=
need() { # WORD HEADER LIBRARY: both, or the build goes without CUDA
    local h l
    if ! h=$(header "$2") || ! l=$(library "$3"); then
        echo "nvcc=$nvcc missing=$1"
        exit 0
    fi
    include+=("include=$h") lib+=("lib=$l")
}
may() { # WORD HEADER LIBRARY VERSION-FILE MAJOR MINOR
    local h l
    h=$(header "$2") || return
    [[ $only_headers ]] || { l=$(library "$3") && lib+=("lib=$l"); } || return
    include+=("include=$h")
    extra+=("$1=$(number "$h/$4" "$5").$(number "$h/$4" "$6")")
}
if [[ $only_headers ]]; then
    h=$(header cuda_runtime_api.h) && d=$(header cuda.h) || exit 0
    (($(number "$h/cuda_runtime_api.h" CUDART_VERSION) >= oldest * 1000)) || exit 0
    version=emulated include=("include=$h" "include=$d")
else
    version=$("$nvcc" --version | sed -n 's/.*release \([0-9.]*\).*/\1/p')
    if ((${version%%.*} < oldest)); then
        echo "nvcc=$nvcc old=$version"
        exit 0
    fi
    need libcudart_static cuda_runtime_api.h libcudart_static.a
    known=$("$nvcc" --list-gpu-code)
    for c in "${code[@]}"; do
        grep -qx "sm_$c" <<<"$known" && codes+=${codes:+,}$c
    done
    extra+=("code=$codes")
fi
may cublas cublas_v2.h libcublas.so cublas_api.h CUBLAS_VER_MAJOR CUBLAS_VER_MINOR
may nccl nccl.h libnccl.so nccl.h NCCL_MAJOR NCCL_MINOR
[[ ! $only_headers ]] && h=$(header nvtx3/nvToolsExt.h) && include+=("include=$h") extra+=(nvtx=3)

echo "nvcc=$nvcc" "version=$version" "${include[@]}" "${lib[@]}" "${extra[@]}"
