#!/usr/bin/env bash
# The claims of MLPO on one GPU: members, trainings, tables. Run it from the project's root.
#     recipes/h200/mlpo.sh                     # the blocks `table` and `share`
#     recipes/h200/mlpo.sh votes rounds        # others; docs/claims.md says what each shows and how long it takes
# What is done is passed by, what was cut off goes on. What fails leaves the rest alone, and the exit code says so. Logs: runs/logs;
# the tables, small enough to keep, are copied to runs/tables.
set -uo pipefail
pilotfish=${PILOTFISH:-pilotfish}
at_once=${AT_ONCE:-3}       # processes that share the GPU
seeds=(${SEEDS:-1 2})       # of the block `seeds`, beside 0
last=${seeds[-1]}

# Of each block the trainings and the tables: recipes of this folder, with @SEED where it is not the recipe's own.
declare -A trainings=(
    [table]="mlpo mlpo-zero-shot mlpo-longer mlpo-no-sft"
    [share]="mlpo-no-sft mlpo-share-reasoning mlpo-share-answer"
    [seeds]="${seeds[*]/#/mlpo@} ${seeds[*]/#/mlpo-zero-shot@} ${seeds[*]/#/mlpo-no-sft@}"
    [votes]="mlpo mlpo-zero-shot"
    [rounds]="mlpo"
    [decimals]="mlpo mlpo-zero-shot"
    [scoreboard]="mlpo"
    [agents]="mlpo-no-sft mlpo-agents-1 mlpo-agents-2 mlpo-agents-3"
    [sets]="mlpo-sets-1 mlpo-sets-2 mlpo-sets-4 mlpo-sets-8"
    [order]="mlpo-sets-4 mlpo-order-by-set mlpo-order-by-task mlpo-order-easy-first mlpo-order-hard-first"
    [filter]="mlpo-no-sft mlpo-filter-off mlpo-filter-half"
    [leaders]="mlpo-no-sft mlpo-leader-weak mlpo-leader-untaught"
)
declare -A tables=([table]="mlpo" [seeds]="${seeds[*]/#/mlpo@}")
for block in share votes rounds decimals scoreboard agents sets order filter leaders; do tables[$block]=mlpo-$block; done

say() { echo "$(date +%T) $*"; }

pilot() { # COMMAND RECIPE RUN DONE [SETTINGS…]: unless there is a file DONE in the run's folder
    local command=$1 recipe=recipes/$2.yaml run=$3 done=runs/$3/$4 log=runs/logs/$1-$3 began=$SECONDS
    shift 4
    [[ -e $done ]] && return
    if $pilotfish "$command" "$recipe" --run "runs/$run" "$@" &>>"$log"; then
        touch "$done"
        rm -rf "runs/$run/checkpoints" "runs/$run"/stages/*/checkpoints # 3 GB a training, of no more use
        say "$command $run: $((SECONDS - began)) s"
    else
        echo "$command $run" >>"$failed"
        say "$command $run: FAILED after $((SECONDS - began)) s, see $log"
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

train() { # FOLDER/RECIPE[@SEED]
    local recipe=${1%@*} seed=${1##*@}
    [[ $seed == "$1" ]] && seed=
    pilot train "$recipe" "${recipe/\//-}${seed:+-$seed}" trained ${seed:+--set "seed=$seed"}
}

measure() { # FOLDER/RECIPE[@SEED]
    if [[ $1 == *@* ]]; then
        measure_seed "${1##*@}" measured
    else
        pilot eval "$1" "${1/\//-}" measured
    fi
}

measure_seed() { # SEED DONE [SETTINGS…]: of mlpo.yaml
    local weights="{zero-shot: runs/h200-mlpo-zero-shot-$1, no-sft: runs/h200-mlpo-no-sft-$1}"
    pilot eval h200/mlpo "h200-mlpo-$1" "$2" --set "seed=$1" --set "evaluate.weights=$weights" "${@:3}"
}

other_seeds() { # of mlpo.yaml, those runs that are measured, here or where runs/tables comes from, but the last one
    local run kept found=
    for kept in runs/tables/h200-mlpo runs/tables/h200-mlpo-[0-9]*; do
        run=runs/${kept##*/}
        [[ -e $kept/scores.jsonl.gz && $run != "runs/h200-mlpo-$last" ]] || continue
        if [[ ! -e $run ]]; then
            mkdir "$run"
            cp "$kept/recipe.yaml" "$run"
            gunzip -c "$kept/scores.jsonl.gz" >"$run/scores.jsonl"
        fi
        found+="$run, "
    done
    echo "[$found]"
}

each() { # FUNCTION ITEM…: in this order, a few at the same time
    local item
    for item in "${@:2}"; do
        while (($(jobs -rp | wc -l) >= at_once)); do sleep 1; done
        $1 "$item" &
    done
    wait
}

once() { # WORD…: each of them once
    printf 'h200/%s\n' "$@" | awk '!known[$0]++'
}

blocks=("$@")
[[ $# -gt 0 ]] || blocks=(table share)
for block in "${blocks[@]}"; do
    [[ -v trainings[$block] ]] || { echo "no block $block; there are: ${!trainings[*]}" >&2; exit 2; }
done
failed=$(mktemp)
trap 'rm -f "$failed"' EXIT
mkdir -p runs/logs
runs=($(once $(for block in "${blocks[@]}"; do echo "${trainings[$block]}"; done)))
pages=($(once $(for block in "${blocks[@]}"; do echo "${tables[$block]}"; done)))

train lab/leader
early=($(printf '%s\n' "${runs[@]}" | grep zero-shot)) # nobody but the leader is in it
[[ " ${blocks[*]} " == *" leaders "* ]] && early+=(h200/mlpo-leader-100)
each train "${early[@]}" lab/agent-1 lab/agent-2 lab/agent-3
say "members: $SECONDS s since the start"
each train "${runs[@]}"
say "trainings: $SECONDS s since the start"
each measure "${pages[@]}"
[[ " ${blocks[*]} " == *" seeds "* ]] && measure_seed "$last" measured-over-seeds --set "evaluate.seeds=$(other_seeds)"
say "${blocks[*]}: $SECONDS s in all"
if [[ -s $failed ]]; then
    echo "failed: $(paste -sd, "$failed")" >&2
    exit 1
fi
