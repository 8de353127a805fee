# How agentpo.sh and mlpo.sh run their claims: in order, as many at the same time as there are places on the GPUs. What is done is
# passed by, what was cut off goes on. What fails leaves the rest alone, and the exit code says so. Logs: runs/logs. Tables, rewards and
# curves, small enough to keep: runs/tables.
#
# Before they call main they say:
#     order                 the blocks
#     tables[BLOCK]         recipes that are measured, with @SEED where the seed is not the recipe's own; + waits for those before it
#     needs[TABLE]          the trainings of a table, which have the table's seed; the one that takes longest first
#     members, of[BLOCK]    trained before all else: of every block, of this one
#     options TABLE [SEED]  the settings of an evaluation, one a line
#     before BLOCK…         what is done first, where there is something
pilotfish=${PILOTFISH:-pilotfish}
gpus=${GPUS:-${CUDA_VISIBLE_DEVICES:-0}}
gpus=(${gpus//,/ })                 # their numbers
at_once=${AT_ONCE:-3}               # trainings that share a GPU
tables_at_once=${TABLES_AT_ONCE:-2} # evaluations beside them
eval_processes=${EVAL_PROCESSES:-1} # that share an evaluation, and its GPU
evaluate=($pilotfish eval)
((eval_processes == 1)) ||
    evaluate=(${TORCHRUN:-torchrun} --standalone --nproc_per_node "$eval_processes" --no-python -- "${evaluate[@]}")
failed=$(mktemp)
trap 'rm -f "$failed"' EXIT
declare -A of=() started=()
mkdir -p runs/logs

before() { :; }

say() { echo "$(date +%T) $*"; }

fail() { # WHAT WHY
    echo "$1" >>"$failed"
    say "$1: FAILED $2"
}

run_of() { # [FOLDER/]RECIPE[@SEED]
    local name=$1
    [[ $name == */* ]] || name=h200/$name
    name=${name/\//-}
    echo "${name/@/-}"
}

in_background() { # KIND PLACES COMMAND…: as soon as a place is free, of as many on each GPU; returns once it is begun
    local kind=$1 places=$(($2 * ${#gpus[@]})) place
    shift 2
    while :; do
        for place in $(seq 0 $((places - 1))); do
            exec 9>"runs/logs/${0##*/}-$kind-$place"
            if flock -n 9; then # until the command has ended
                CUDA_VISIBLE_DEVICES=${gpus[place % ${#gpus[@]}]} "$@" &
                begun=$!
                exec 9>&-
                return
            fi
        done
        sleep 1
    done
}

logged() { # WHAT RUN DONE COMMAND…: unless there is a file DONE in the run's folder; another script may be at it
    local what=$1 run=$2 done=runs/$2/$3 log=runs/logs/$1-$2 began=$SECONDS
    shift 3
    exec 8>"$log.lock" # held by the command too, should this script end before it
    flock 8
    [[ -e $done ]] && return
    if "$@" &>>"$log" 9>&- && touch "$done"; then
        say "$what $run: $((SECONDS - began)) s"
    else
        fail "$what $run" "after $((SECONDS - began)) s, see $log"
    fi
    keep "$run"
}

keep() { # RUN: its tables, the reward of each episode, what its trainings logged and counted
    local to=runs/tables/$1 file name
    mkdir -p "$to"
    for file in runs/"$1"/{recipe.yaml,results*.csv,results.{md,json},metrics.jsonl,best/sft.json,stages/*/{metrics.jsonl,filter.json,backtrack.json}}; do
        name=${file#"runs/$1/"}
        [[ -e $file ]] && cp "$file" "$to/${name//\//-}"
    done
    [[ -e runs/$1/scores.jsonl ]] && gzip -9nc "runs/$1/scores.jsonl" >"$to/scores.jsonl.gz"
}

train() { # [FOLDER/]RECIPE[@SEED]
    local recipe=${1%@*} run seed=()
    [[ $recipe == */* ]] || recipe=h200/$recipe
    [[ $1 == *@* ]] && seed=(--set "seed=${1#*@}")
    run=$(run_of "$1")
    logged train "$run" trained $pilotfish train "recipes/$recipe.yaml" --run "runs/$run" "${seed[@]}"
    [[ -e runs/$run/trained ]] && rm -rf "runs/$run/checkpoints" "runs/$run"/stages/*/checkpoints # 3 GB
}

begin() { # [FOLDER/]RECIPE[@SEED]…: train each in its turn, once
    local item
    for item; do
        [[ -v started[$item] || -e runs/$(run_of "$item")/trained ]] && continue
        in_background train "$at_once" train "$item"
        started[$item]=$begun
    done
}

await() { # [FOLDER/]RECIPE[@SEED]…: until each is trained or has failed; those that have failed are named
    local item run
    for item; do
        run=$(run_of "$item")
        until [[ -e runs/$run/trained ]]; do
            grep -qx "train $run" "$failed" && { echo "$item"; break; }
            kill -0 "${started[$item]-$$}" 2>/dev/null || [[ -e runs/$run/trained ]] || grep -qx "train $run" "$failed" ||
                fail "train $run" "since it was killed"
            sleep 1
        done
    done
}

trained_for() { # TABLE[@SEED]
    local table=${1%@*} need
    for need in ${needs[$table]}; do echo "$need${1#"$table"}"; done
}

measure() { # TABLE[@SEED]
    local lacks
    lacks=$(await $(trained_for "$1") | paste -sd' ')
    [[ ! $lacks ]] || { fail "eval $(run_of "$1")" "before it began: not trained: $lacks"; return; }
    in_background table "$tables_at_once" measured "$1"
    wait
}

measured() { # TABLE[@SEED]: over the seeds that are there when its turn comes; another block may be at it
    local table=${1%@*} run settings=() done=measured
    run=$(run_of "$1")
    exec 7>"runs/logs/eval-$run.turn"
    flock 7
    mapfile -t settings < <(options "$table" $([[ $1 == *@* ]] && echo "${1#*@}"))
    [[ ${settings[*]-} == *evaluate.seeds* ]] && done=measured-over-$(cksum <<<"${settings[*]}" | cut -d' ' -f1) # over these seeds
    logged eval "$run" $done "${evaluate[@]}" "recipes/h200/$table.yaml" --run "runs/$run" "${settings[@]}"
}

tell() { # BLOCK: its tables
    local table
    for table in ${tables[$1]}; do
        if [[ $table == + ]]; then wait; else measure "$table" & fi
    done
    wait
    say "block $1: $SECONDS s since the start"
}

main() { # [BLOCK…]
    local blocks=("$@") block table
    [[ $# -gt 0 ]] || blocks=("${order[@]}")
    for block in "${blocks[@]}"; do
        [[ -v tables[$block] ]] || { echo "no block $block; there are: ${order[*]}" >&2; exit 2; }
    done
    ((at_once > 0 && tables_at_once > 0 && ${#gpus[@]} > 0)) || { echo "no place: GPUS, AT_ONCE and TABLES_AT_ONCE" >&2; exit 2; }
    before "${blocks[@]}"
    begin "${members[@]}" $(for block in "${blocks[@]}"; do echo "${of[$block]-}"; done)
    for block in "${blocks[@]}"; do
        await "${members[@]}" ${of[$block]-} >/dev/null
        begin $(for table in ${tables[$block]}; do [[ $table == + ]] || trained_for "$table" | nl; done | sort -sn | cut -f2)
        tell "$block" &
    done
    wait
    say "${blocks[*]}: $SECONDS s in all"
    if [[ -s $failed ]]; then
        echo "failed: $(paste -sd, "$failed")" >&2
        exit 1
    fi
}
